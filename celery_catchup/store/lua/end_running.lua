-- Mark a running run for its end: its worker is asked to end the task, and whatever it reports, the run is revoked.
-- If the worker does not answer, that happens when the lease ends.
--
-- KEYS ledger       hash  run id -> run as JSON
-- KEYS revocations  hash  task id -> "terminate" or "revoke"
-- KEYS audit, audit_times   the audit trail: records by id, ids by time (ms)
-- ARGV run_id
-- ARGV why                the error that is recorded
-- ARGV change           the record of this change, for the audit trail
-- RETURNS the ids of the tasks to end, or false if the run is not running
local id = args.run_id
local run = load_run(id)
if not run or run.state ~= 'running' then return false end
record_change()
run.replaced, run.error = true, args.why
store_run(id, run)
local tasks = { run.task_id or task_id(id, run.attempt) }
redis.call('HSET', keys.revocations, tasks[1], 'terminate')
return tasks
