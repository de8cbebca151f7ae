/* check.c - every invariant of the store that can be checked by reading.
 *
 * Findings are collected under the mutex and told after it is released.
 */
#include "base/error.h"
#include "base/str.h"
#include "store/finding.h"
#include "store/memory/memory_store.h"

#include <stdarg.h>
#include <stdio.h>

enum { FINDING_BYTES_MAX = 256 };

static void finding_add(store_findings *f, const char *rule, const char *format, ...)
    WEIR_PRINTF(3, 4);

static void finding_add(store_findings *f, const char *rule, const char *format, ...)
{
    char text[FINDING_BYTES_MAX];
    va_list args;

    va_start(args, format);
    (void)!vsnprintf(text, sizeof text, format, args);
    va_end(args);
    weir__finding_keep(f, rule, text, "This is an error in Weir; please report it.");
}

static void check_order(const row_table *t, const char *what, store_findings *f)
{
    for (size_t i = 1; i < t->count; i++) {
        if (weir__row_compare(t->kind, t->rows[i - 1], t->rows[i]) >= 0) {
            finding_add(f, "order", "The order of the %s is broken at row %zu.", what, i);
        }
    }
}

static void check_log(const memory_core *c, store_findings *f)
{
    int64_t created_us = INT64_MIN;
    for (size_t i = 0; i < c->events.count; i++) {
        const weir_event *e = c->events.rows[i];
        if (e->id != c->position_base + (int64_t)i + 1) {
            finding_add(f, "log", "Position %lld is not where it should be.", (long long)e->id);
        }
        if (e->created_us < created_us) {
            finding_add(f, "log", "The event at position %lld is older than the one before it.",
                        (long long)e->id);
        }
        created_us = e->created_us;
    }
}

static void check_streams(const memory_core *c, store_findings *f)
{
    const weir_event *before = NULL;
    for (size_t i = 0; i < c->streams.count; i++) {
        const weir_event *e = c->streams.rows[i];
        const bool first = before == NULL || !weir__str_equal(before->stream, e->stream);
        if (e->version != (first ? c->version_base : before->version + 1)) {
            finding_add(f, "stream", "Version %lld of stream \"%.*s\" is not where it should be.",
                        (long long)e->version, (int)e->stream.len, e->stream.ptr);
        }
        before = e;
    }
    if (c->streams.count != c->events.count) {
        finding_add(f, "stream", "The streams have %zu events, the log has %zu.", c->streams.count,
                    c->events.count);
    }
}

static void check_targets(const memory_core *c, store_findings *f)
{
    for (size_t i = 0; i < c->targets.count; i++) {
        const store_target *t = c->targets.rows[i];
        store_target derived = *t;
        weir__memory_derive(c, &derived);
        if (derived.behind != t->behind || derived.watermark != t->watermark ||
            derived.priority != t->priority) {
            finding_add(f, "derived", "Target \"%.*s\" is out of step with its subscriptions.",
                        (int)t->name.len, t->name.ptr);
        }
        if (weir__memory_target_named(c, t->name) != t) {
            finding_add(f, "order", "Target \"%.*s\" is not found by its name.", (int)t->name.len,
                        t->name.ptr);
        }
    }
    for (size_t i = 0; i < c->subscriptions.count; i++) {
        const memory_subscription *s = c->subscriptions.rows[i];
        if (s->at > s->mark || weir__memory_target(c, s->target) == NULL) {
            finding_add(f, "subscription", "Target %lld is at %lld, above its mark %lld.",
                        (long long)s->target, (long long)s->at, (long long)s->mark);
        }
    }
    for (size_t i = 0; i < c->work.count; i++) {
        const memory_work *w = c->work.rows[i];
        const memory_subscription *s = weir__memory_subscription(c, w->target, w->reaction);
        if (s == NULL || w->event <= s->at) {
            finding_add(f, "work", "Target %lld has a work row for event %lld, which it handled.",
                        (long long)w->target, (long long)w->event);
        }
    }
}

static void check_reactions(const memory_core *c, store_findings *f)
{
    for (size_t i = 0; i < c->reactions.count; i++) {
        const store_reaction *r = c->reactions.rows[i];
        if (r->routed < r->since) {
            finding_add(f, "reaction",
                        "Reaction \"%.*s\" is routed up to %lld, before it began at %lld.",
                        (int)r->name.len, r->name.ptr, (long long)r->routed, (long long)r->since);
        }
    }
}

weir_status weir__memory_check(weir_store *base, store_finding_fn fn, void *ctx, weir_error *err)
{
    store_findings f = { .count = 0 };
    memory_core *c = weir__memory_lock(base);

    check_order(&c->events, "log", &f);
    check_order(&c->streams, "streams", &f);
    check_order(&c->targets, "targets", &f);
    check_order(&c->names, "targets' names", &f);
    check_order(&c->subscriptions, "subscriptions", &f);
    check_order(&c->work, "work rows", &f);
    check_order(&c->parked, "parked events", &f);
    check_log(c, &f);
    check_streams(c, &f);
    check_reactions(c, &f);
    check_targets(c, &f);
    return weir__findings_tell(&f, weir__memory_unlock(c, WEIR_OK, err), fn, ctx, err);
}
