-- The columns of a lease that beats change, without the offer, which takes a quarter of a page: a thousand beats are 20 pages.
-- expires_at is null where the lease never ends.
create table beat (
  workspace  text not null,
  role       text not null,
  instance   text not null,
  epoch      integer not null,
  capacity   integer,
  in_flight  integer not null,
  last_seen  real not null,
  expires_at real,
  primary key (workspace, role, instance)
) strict, without rowid;

insert into beat select workspace, role, instance, epoch, capacity, in_flight, last_seen, expires_at from lease;

alter table lease drop column capacity;
alter table lease drop column in_flight;
alter table lease drop column last_seen;
alter table lease drop column expires_at;
