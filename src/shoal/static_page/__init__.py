"""Pages for people, as one HTML file each: without code, without external resources, in one style."""

from .document import Pill, static_page, style, text_in_html
from .tables import Column, Row, Table, section, table_section

__all__ = [
    "Column",
    "Pill",
    "Row",
    "Table",
    "section",
    "static_page",
    "style",
    "table_section",
    "text_in_html",
]
