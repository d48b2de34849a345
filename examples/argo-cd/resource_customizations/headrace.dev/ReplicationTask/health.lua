-- Written without Lua's libraries: Argo CD gives a script none.
local status = obj.status or {}
local phase = status.phase
local ready = {}
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" then ready = condition end
end

local function health(is, message)
  return { status = is, message = message }
end

if phase == "Failed" then
  return health("Degraded", (status.lastError or {}).message)
end
-- Not all units say which generation they know.
if status.observedGeneration and status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "its driver has not acted on this spec yet")
end
if ready.status == "False" then
  return health("Progressing", ready.message)
end
if phase == "Paused" then
  return health("Suspended", "paused on " .. status.driverName)
end
if phase == "Running" then
  return health("Healthy", "runs on " .. status.driverName)
end
-- "Suspended" is a phase of the hand-over, and not what Argo CD calls so.
return health("Progressing", phase or "waits for a driver")
