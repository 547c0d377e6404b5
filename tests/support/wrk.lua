-- For wrk.py. Says what came of the run as one line of JSON; arguments: how many requests are sent in one go, and
-- nothing, or a file that gets what each answer says, one line each: its body, or, unless that is one number and the
-- status 200, "bad" and why.

function init(args)
  local depth = tonumber(args[1])
  if depth > 1 then
    local together = string.rep(wrk.format(), depth)
    request = function() return together end
  end
  if args[2] then
    -- One file for each thread of wrk, whose states know nothing of each other.
    local file = assert(io.open(args[2] .. "." .. tostring(wrk.thread):match("0x%x+"), "w"))
    file:setvbuf("full", 65536)
    response = function(status, _, body)
      local id = status == 200 and body:match("^(%d+)\n?$")
      file:write(id or string.format("bad %d %s", status, body:gsub("%s+", " ")), "\n")
    end
  end
end

function done(summary, latency, _)
  local errors = summary.errors
  print(string.format(
    '{"requests": %d, "duration_s": %f, "p50_ms": %f, "p99_ms": %f, "p999_ms": %f, "connect": %d, "read": %d, ' ..
    '"write": %d, "timeout": %d, "status": %d}',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency:percentile(99.9) / 1e3, errors.connect, errors.read, errors.write, errors.timeout, errors.status))
end
