"""Recordings from files: which shape a record has is seen from the record itself, so files may be mixed.

`files` reads lines and puts events of one stream together, `records` finds requests and answers in JSON objects,
`answers` is what they have in common, `texts` turns text into token ids where a source has none.
"""
