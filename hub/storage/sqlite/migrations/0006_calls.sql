-- What a repeated message is recognised by. `name` is a hash (`digest` of rolecall/model/call.py), so rows land on random pages:
-- they go when the window after the task's end is over. `began`: where in the task's log the answer begins. `content`: the hash of
-- the message, for a name that the caller chose; empty for one that is made of the message. A chosen name goes with its task.
create table call (
  name    blob primary key,
  task    integer not null,
  began   integer not null,
  content blob not null
) strict, without rowid;

-- The names of a message, 16 bytes each, are with it as well: so they are found when it goes, and `call` needs no second index.
alter table task add column names blob not null default x'';
alter table turn add column names blob not null default x'';

update task set names = case
  when caller_key like 'alias' || char(10) || '%' then digest(workspace, caller, '@', substr(caller_key, 7))
  else digest(workspace, caller, '#', caller_key)
end where caller_key <> '';

insert into call select names, key, 0, digest(turn_params) from task where caller_key <> '';

-- Older hubs did not store whether the path named the role, so both names are used. No window is longer than a day.
update task set names = cast(digest(workspace, caller, role, turn_params) || digest(workspace, caller, '', turn_params) as blob)
where coalesce(caller_key, '') = '' and (idle_since is null or updated > unixepoch() - 86400);

-- In the order of admission, so that a name is the latest task's.
insert or replace into call
select substr(names, 1, 16), key, 0, x'' from task not indexed where coalesce(caller_key, '') = '' and names <> x'';

insert or replace into call
select substr(names, 17), key, 0, x'' from task not indexed where coalesce(caller_key, '') = '' and names <> x'';

drop index task_caller_key;
alter table task drop column caller_key;
