/* read_only.c - see read_only.h.
 *
 * INVARIANT  Every verb of the port that changes something is replaced below; the others, and
 * whatever is only tried (dry runs of operators), are the adapter's own.
 */
#include "store/read_only.h"

#include "base/error.h"

static weir_status write_refuse(weir_error *err)
{
    return weir__fail(err, WEIR_EMISUSE, "the store was opened for reading only");
}

/* The port's signatures: what is an output there is not written here. */
/* NOLINTBEGIN(readability-non-const-parameter) */

static weir_status append_refused(weir_store *s, store_append *const *appends, size_t count,
                                  weir_error *err)
{
    (void)s, (void)appends, (void)count;
    return write_refuse(err);
}

static weir_status append_in_refused(weir_store *s, void *native, store_append *one,
                                     weir_error *err)
{
    (void)s, (void)native, (void)one;
    return write_refuse(err);
}

static weir_status declare_refused(weir_store *s, const store_reaction_declaration *d,
                                   weir_arena *arena, store_reaction *out, weir_error *err)
{
    (void)s, (void)d, (void)arena, (void)out;
    return write_refuse(err);
}

static weir_status retire_refused(weir_store *s, weir_str name, weir_error *err)
{
    (void)s, (void)name;
    return write_refuse(err);
}

static weir_status router_lease_refused(weir_store *s, weir_str holder, int64_t lease_us,
                                        store_router_lease *items, size_t count, weir_error *err)
{
    (void)s, (void)holder, (void)lease_us, (void)items, (void)count;
    return write_refuse(err);
}

static weir_status route_refused(weir_store *s, const store_route *r, size_t *bad_mark,
                                 weir_error *err)
{
    (void)s, (void)r, (void)bad_mark;
    return write_refuse(err);
}

static weir_status settle_refused(weir_store *s, store_settle *one, weir_error *err)
{
    (void)s, (void)one;
    return write_refuse(err);
}

static weir_status extend_refused(weir_store *s, int64_t lease_us, store_fenced *items,
                                  size_t count, weir_error *err)
{
    (void)s, (void)lease_us, (void)items, (void)count;
    return write_refuse(err);
}

static weir_status operate_refused(weir_store *s, store_operate *op, weir_error *err)
{
    return op->dry_run ? s->operating->operate(s, op, err) : write_refuse(err);
}

static weir_status lane_pause_refused(weir_store *s, weir_str lane, bool paused, weir_str by,
                                      bool *changed, weir_error *err)
{
    (void)s, (void)lane, (void)paused, (void)by, (void)changed;
    return write_refuse(err);
}

static weir_status parked_change_refused(weir_store *s, int64_t parked, store_parked_action action,
                                         weir_error *err)
{
    (void)s, (void)parked, (void)action;
    return write_refuse(err);
}

static weir_status snapshot_put_refused(weir_store *s, const store_snapshot *snapshot,
                                        weir_error *err)
{
    (void)s, (void)snapshot;
    return write_refuse(err);
}

static weir_status snapshot_drop_refused(weir_store *s, weir_str category, weir_str keep_revision,
                                         int64_t *dropped, weir_error *err)
{
    (void)s, (void)category, (void)keep_revision, (void)dropped;
    return write_refuse(err);
}

static weir_status worker_beat_refused(weir_store *s, const store_worker *worker, int64_t lease_us,
                                       weir_error *err)
{
    (void)s, (void)worker, (void)lease_us;
    return write_refuse(err);
}

static weir_status turn_refused(weir_store *s, store_settle *const *settles, size_t settles_count,
                                const store_lease_request *request, store_lease_list *list,
                                weir_error *err)
{
    (void)s, (void)settles, (void)settles_count, (void)request, (void)list;
    return write_refuse(err);
}

static weir_status lock_take_refused(weir_store *s, const store_lock_request *q, weir_arena *arena,
                                     store_lock *out, weir_error *err)
{
    (void)s, (void)q, (void)arena, (void)out;
    return write_refuse(err);
}

static weir_status lock_extend_refused(weir_store *s, store_lock_kind kind, weir_str name,
                                       int64_t fence, int64_t token, int64_t lease_us,
                                       weir_error *err)
{
    (void)s, (void)kind, (void)name, (void)fence, (void)token, (void)lease_us;
    return write_refuse(err);
}

static weir_status lock_release_refused(weir_store *s, weir_str name, int64_t fence, int64_t token,
                                        weir_error *err)
{
    (void)s, (void)name, (void)fence, (void)token;
    return write_refuse(err);
}

static weir_status once_finish_refused(weir_store *s, weir_str key, int64_t fence, int64_t token,
                                       int64_t exit_status, weir_str output, weir_error *err)
{
    (void)s, (void)key, (void)fence, (void)token, (void)exit_status, (void)output;
    return write_refuse(err);
}

static weir_status once_forget_refused(weir_store *s, weir_str key, weir_error *err)
{
    (void)s, (void)key;
    return write_refuse(err);
}

/* NOLINTEND(readability-non-const-parameter) */

void weir__store_read_only(weir_store *s, store_reading *reading)
{
    *reading =
        (store_reading){ .log = *s->log, .work = *s->work, .locks = *s->locks, .about = *s->about };
    reading->log.append = append_refused;
    if (s->log->append_in != NULL) {
        reading->log.append_in = append_in_refused;
    }
    reading->log.snapshot_put = snapshot_put_refused;
    reading->log.snapshot_drop = snapshot_drop_refused;
    reading->work.declare = declare_refused;
    reading->work.retire = retire_refused;
    reading->work.router_lease = router_lease_refused;
    reading->work.route = route_refused;
    reading->work.turn = turn_refused;
    reading->work.settle = settle_refused;
    reading->work.extend = extend_refused;
    reading->work.operate = operate_refused;
    reading->work.lane_pause = lane_pause_refused;
    reading->work.parked_change = parked_change_refused;
    reading->locks.take = lock_take_refused;
    reading->locks.extend = lock_extend_refused;
    reading->locks.release = lock_release_refused;
    reading->locks.finish = once_finish_refused;
    reading->locks.forget = once_forget_refused;
    reading->about.worker_beat = worker_beat_refused;
    s->operating = s->work;
    s->log = &reading->log;
    s->work = &reading->work;
    s->locks = &reading->locks;
    s->about = &reading->about;
}
