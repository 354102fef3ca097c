//! The two inner loops of shoal's mirror, without the interpreter: the stamping walk, and the pump.
//!
//! `shoal` takes this module if it can be imported, and has both in Python otherwise. The Python versions are the
//! reference: the tests run both over the same cases. TLS, logins, crops, rebuilds and joins stay in Python.

#![deny(unsafe_code)]
#![cfg_attr(not(feature = "python"), allow(dead_code))]

mod checksum;
mod produce;
mod pump;
#[cfg(feature = "python")]
mod python;
mod socket;
mod walk;
