-- renew: for each claim, says where it stands and lets it live at least this much longer. Never joins.
--
-- KEYS: the names of all claims, one claim after the other.
-- ARGV: now; then for each claim how much longer, its owner, client and home, and what it wanted.
local now = ARGV[1]
