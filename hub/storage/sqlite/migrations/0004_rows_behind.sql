-- The worker's position after an event that its task's row does not include yet: see task_now.
alter table event add column position text;

-- Current rows. An append that changes only the end of the log writes no row, so the row of an open task may be up to a few
-- hundred events behind. The view task_now adds them up.
-- `written`: when the row was last written. `updated`: when the state last changed; content does not change it.
alter table task add column written real not null default 0;

-- Most tasks are admitted without a context, and get one from their worker.
drop index task_context;
create index task_context on task (workspace, caller, context) where context <> '';

-- Empty without a key; null in older rows.
drop index task_caller_key;
create unique index task_caller_key on task (workspace, caller, caller_key) where caller_key <> '';

drop trigger task_owes;
create trigger task_owes after update of last on task when new.pushes and new.last > old.last and not new.hidden begin
  update delivery set since = case when sent = last then new.written else since end, last = new.last
  where task = new.key and only = 0;
end;

create view task_now as
select
  key, id, workspace, caller, role, worker, epoch, context, worker_task, worker_context, dialect, spoken, alias, state,
  ends as last,
  case when ends > last
    then coalesce((select nullif(position, '') from event where place = (key << 24) + ends), position) else position end as position,
  case when ends > last
    then size + (select sum(length(body)) from event where place > (key << 24) + last and place <= (key << 24) + ends)
    else size end as size,
  created, updated, idle_since, hidden, pushes
from (
  select *, case when idle_since is not null then last else coalesce(
    (select max(place) - (key << 24) from event where place > key << 24 and place < (key + 1) << 24), 0) end as ends
  from task
);
