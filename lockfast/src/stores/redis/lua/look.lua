-- look: the lines of names as they are, settled. Ends early when it has looked at enough: it is alone on the server meanwhile.
--
-- KEYS: the names. ARGV: now; how many of each line are wanted; how many of the first were shown before, and the number of the
-- last of those; then the tag of each name.
-- For each name until it ends: how much longer it is sealed, or -1; its capacity; for each in line seven words and the note; and
-- how many more are behind those.
local now, wanted, before, after = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
