-- renew: for each claim, says where it stands and lets it live at least this much longer. Never joins.
--
-- KEYS: the names of all claims, one claim after the other.
-- ARGV: now; how much longer, for most; then for each claim 'xOWNER CLIENT HOME' if it wants one name alone, for as long as
-- most; otherwise 'OWNER CLIENT HOME LEASE' and what it wants of its names. Few words, since each costs as much as a look.
local now, usual = ARGV[1], tonumber(ARGV[2])
