-- acquire: joins the line of each name, or says where the claim stands and renews it.
--
-- KEYS: the names wanted. ARGV: as named below; then what is wanted of the names.
local kind, ttl, block, floor, now = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local asked = {
  owner = ARGV[6], client = ARGV[7], home = ARGV[8], note = ARGV[9], since = now, ttl = ttl, count = block,
}
read_wants(asked, 10, 0)
