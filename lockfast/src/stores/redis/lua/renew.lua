-- renew: for each claim, says where it stands and lets it live at least this much longer. Never joins.
--
-- KEYS: the names of all claims, one claim after the other.
-- ARGV: now; then for each claim its owner, client and home, how much longer, and how many names; then for each name its
-- tag, and the weight and capacity wanted.
local now = ARGV[1]
