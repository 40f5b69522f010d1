-- look: the lines of names as they are, settled.
--
-- KEYS: the names. ARGV: now; then the tag of each name.
-- For each name: how much longer it is sealed, or -1; its capacity; then for each in line nine words and the note.
local now = ARGV[1]
