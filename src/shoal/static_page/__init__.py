"""Pages for people, as one HTML file each: without code, without external resources, in one style."""

from .document import Pill, static_page, style, text_in_html

__all__ = ["Pill", "static_page", "style", "text_in_html"]
