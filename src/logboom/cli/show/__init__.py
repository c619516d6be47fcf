"""How commands print: tables, records, progress, words; safe for terminals."""
