//! The inner loops of shoal without the interpreter: the mirror's stamping walk, its sender, and the walk of `verify`.
//!
//! `shoal` takes this module if it can be imported, and has them in Python otherwise. The Python versions are the
//! reference: the tests run both paths over the same cases. Logins, crops and rebuilds stay in Python, and TLS
//! is that of Python's `ssl`.

#![deny(unsafe_code)]
#![cfg_attr(not(feature = "python"), allow(dead_code))]

mod checksum;
mod fingerprint;
mod join;
mod produce;
#[cfg(feature = "python")]
mod python;
mod sender;
mod socket;
#[cfg(feature = "python")]
mod tls;
mod varint;
mod walk;
