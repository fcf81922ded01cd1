-- What a repeated message is recognised by. `name` is a hash (`digest` of rolecall/model/call.py), so rows land on random pages:
-- they go when the window after the task's end is over. `began`: where in the task's log the answer begins. `content`: the hash of
-- the message, for a name that the caller chose; empty for one that is made of the message. A chosen name goes with its task.
create table call (
  name    blob primary key,
  task    integer not null,
  began   integer not null,
  content blob not null
) strict, without rowid;

create index call_task on call (task);

insert into call
select digest(workspace, caller, '#', caller_key), key, 0, digest(turn_params) from task
where caller_key <> '' and caller_key not like 'alias' || char(10) || '%';

insert into call
select digest(workspace, caller, '@', substr(caller_key, 7)), key, 0, digest(turn_params) from task
where caller_key like 'alias' || char(10) || '%';

-- Older hubs did not store whether the path named the role, so both names are used. No window is longer than a day. In the order
-- of admission, so that a name is the latest task's.
insert or replace into call
select digest(workspace, caller, role, turn_params), key, 0, x'' from task not indexed
where coalesce(caller_key, '') = '' and (idle_since is null or updated > unixepoch() - 86400);

insert or replace into call
select digest(workspace, caller, '', turn_params), key, 0, x'' from task not indexed
where coalesce(caller_key, '') = '' and (idle_since is null or updated > unixepoch() - 86400);

drop index task_caller_key;
alter table task drop column caller_key;
