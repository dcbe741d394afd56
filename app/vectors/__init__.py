"""The vectors of texts: what the last layer of an encoder reads of each, kept in the cache by content; and a
linear head on them, which is fitted in milliseconds."""
