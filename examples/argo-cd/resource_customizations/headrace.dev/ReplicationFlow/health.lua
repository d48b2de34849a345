-- Written without Lua's libraries: Argo CD gives a script none.
local status = obj.status or {}
local ready, stalled, paused = {}, {}, {}
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" then ready = condition end
  if condition.type == "Stalled" then stalled = condition end
  if condition.type == "ReconciliationPaused" then paused = condition end
end

local function health(is, message)
  return { status = is, message = message }
end

if status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "the operator has not acted on this spec yet")
end
if stalled.status == "True" then
  return health("Degraded", stalled.message)
end
if paused.status == "True" then
  return health("Suspended", paused.message)
end
-- Its driver starts it again, with growing pauses: to kstatus that is in progress.
if ready.reason == "TaskFailed" then
  return health("Degraded", ready.message)
end
if ready.status ~= "True" then
  return health("Progressing", ready.message)
end
if obj.spec.state == "Paused" or obj.spec.state == "Stopped" then
  return health("Suspended", ready.message)
end
return health("Healthy", ready.message)
