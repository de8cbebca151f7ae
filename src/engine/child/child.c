/* child.c - what the doings of a program mean for the event it was given.
 *
 * INVARIANTS
 *   (1) A call that returns WEIR_OK has a kind, and every kind but DONE and DEFER has a `why`.
 *   (2) A program that stays has answered every question it was given: one that did anything else
 *       is killed, because what it writes next could be taken for the answer to the next question.
 *
 * THREADS  A child belongs to one thread at a time; nothing is shared but the keeper.
 */
#include "engine/child/child.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "base/utf8.h"
#include "engine/child/reply.h"
#include "supervisor/supervisor.h"

enum {
    WHY_BYTES_MAX = 1000,
    LINE_SHOWN_BYTES = 200, /* of a line that is no reply */
    EXIT_PERMANENT = 65,    /* EX_DATAERR of sysexits.h   */
};

/* A program that reads to the end of stdin waits for ever: stdin stays open for the next event. */
static const char silent_hint[] =
    "; an exec: handler gets one line per event and must answer each line (read a line, not to the "
    "end of stdin)";

struct child {
    child_keeper *keeper; /* borrowed, outlives the child           */
    char *command;        /* owned                                  */
    process *program;     /* owned; NULL: the next question starts it */
};

/* ---- results -------------------------------------------------------------------------------- */

static void result_reset(child_result *r)
{
    weir__arena_reset(&r->arena);
    weir__buffer_clear(&r->json);
    weir__buffer_clear(&r->text);
    *r = (child_result){ .arena = r->arena, .json = r->json, .text = r->text };
}

void weir__child_result_free(child_result *r)
{
    weir__arena_free(&r->arena);
    weir__buffer_free(&r->json);
    weir__buffer_free(&r->text);
    *r = (child_result){ .kind = 0 };
}

/* A text that any store can keep and any terminal can show: what is not UTF-8, and control
 * characters but for the newlines of several lines, become '?'. */
static bool text_add(weir_buffer *out, weir_str text, bool one_line)
{
    const char *at = text.ptr;
    const char *const end = text.ptr + text.len;
    bool ok = weir__buffer_reserve(out, text.len + 1);

    while (ok && at < end) {
        uint32_t code = 0;
        const size_t len = weir__utf8_decode(at, end, &code);
        const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
        const bool kept = len > 0 && (!control || (!one_line && (code == '\n' || code == '\t')));
        const char *shown = kept ? at : (code == '\n' || code == '\t' ? " " : "?");
        ok = weir__buffer_add(out, shown, kept ? len : 1);
        at += len > 0 ? len : 1;
    }
    return ok;
}

static bool stderr_add(weir_buffer *out, const process *p)
{
    size_t from = 0, to = p->tail_len;
    char head[64];

    while (p->tail_cut && from < to && from < 3 && ((unsigned char)p->tail[from] & 0xc0) == 0x80) {
        from++; /* the rest of a character whose beginning is gone */
    }
    while (to > from && p->tail[to - 1] == '\n') {
        to--;
    }
    if (to == from) {
        return true;
    }
    const int len = p->tail_cut ? snprintf(head, sizeof head, "\nstderr, its last %d bytes:\n",
                                           (int)CHILD_STDERR_BYTES_MAX)
                                : snprintf(head, sizeof head, "\nstderr:\n");
    return weir__buffer_add(out, head, (size_t)len) &&
           text_add(out, (weir_str){ .ptr = p->tail + from, .len = to - from }, false);
}

/* p: whose stderr is shown; may be NULL. */
static weir_status result_explain(child_result *out, int32_t kind, const process *p, weir_str why,
                                  weir_error *err)
{
    if (why.len > WHY_BYTES_MAX) {
        why.len = WHY_BYTES_MAX;
        const size_t valid = weir__utf8_valid_prefix(why.ptr, why.len);
        why.len = why.len - valid < WEIR_UTF8_BYTES_MAX ? valid : why.len;
    }
    weir__buffer_clear(&out->text);
    bool ok = text_add(&out->text, why, true);
    const size_t why_len = out->text.len;
    ok = ok && (p == NULL || stderr_add(&out->text, p));
    if (!ok) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    out->kind = kind;
    out->why = (weir_str){ .ptr = out->text.ptr, .len = why_len };
    out->error = (weir_str){ .ptr = out->text.ptr, .len = out->text.len };
    return WEIR_OK;
}

static weir_status explain_as(child_result *out, int32_t kind, const process *p, weir_error *err,
                              const char *format, ...) WEIR_PRINTF(5, 6);
static weir_status explain_as(child_result *out, int32_t kind, const process *p, weir_error *err,
                              const char *format, ...)
{
    char why[WHY_BYTES_MAX];
    va_list arguments;

    va_start(arguments, format);
    const int len = vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    WEIR_ASSERT(len > 0);
    return result_explain(out, kind, p, weir__str(why), err);
}

/* A reply that cannot be taken at its word is none. */
static weir_status explain_rubbish(child_result *out, const process *p, const weir_error *reason,
                                   weir_str line, weir_error *err)
{
    const int len = (int)(line.len < LINE_SHOWN_BYTES ? line.len : LINE_SHOWN_BYTES);

    out->reply = (weir_str){ .ptr = NULL };
    out->appends = NULL;
    out->appends_count = 0;
    out->defer_us = 0;
    return explain_as(out, CHILD_RETRY, p, err, "the handler's answer is not a reply: %s: %.*s",
                      reason->message, len, line.ptr);
}

/* *valid: the program spoke as it should. */
static weir_status reply_judge(child_result *out, const process *p, weir_str line, bool *valid,
                               weir_error *err)
{
    weir_error reason;
    reply_text text;
    const weir_status status = weir__reply_take(out, line, &text, &reason);

    *valid = status == WEIR_OK;
    if (status == WEIR_ENOMEM) {
        return weir__fail(err, status, "out of memory");
    }
    if (status != WEIR_OK) {
        return explain_rubbish(out, p, &reason, line, err);
    }
    if (out->kind == CHILD_DONE || out->kind == CHILD_DEFER) {
        return WEIR_OK;
    }
    return result_explain(out, out->kind, p,
                          text.why.len > 0 ? text.why : weir__str("the handler gave no reason"),
                          err);
}

/* ---- ends ----------------------------------------------------------------------------------- */

/* How a program ended that is over: `suffix` says what was wrong with that. */
static weir_status exit_explain(child_result *out, int32_t kind, const process *p,
                                const char *suffix, weir_error *err)
{
    const int status = p->wait_status;
    const char *left =
        p->left_behind ? "; processes it had left in the background were killed" : "";

    if (p->lost) {
        return explain_as(
            out, CHILD_RETRY, p, err,
            "the process that supervises the handler was killed, and the handler with it");
    }
    return WIFSIGNALED(status)
               ? explain_as(out, kind, p, err, "the handler was killed by signal %d%s%s",
                            WTERMSIG(status), suffix, left)
               : explain_as(out, kind, p, err, "the handler exited with %d%s%s",
                            WEXITSTATUS(status), suffix, left);
}

/* Ends a program that did not end by itself. stays: it is one that answers line by line. */
static weir_status cut_short(child_result *out, process *p, const child_call *call,
                             process_turn turn, bool stays, weir_error *err)
{
    weir__process_end(p, call);
    if (p->flooded) {
        return explain_as(out, CHILD_RETRY, p, err,
                          "the handler wrote a line of more than %d bytes and was killed",
                          (int)CHILD_LINE_BYTES_MAX);
    }
    return turn == PROCESS_STOPPED
               ? explain_as(out, CHILD_INTERRUPTED, p, err, "the handler was interrupted")
               : explain_as(out, CHILD_RETRY, p, err,
                            "the handler was not done by its deadline and was killed%s",
                            stays ? silent_hint : "");
}

/* Nothing was run: that is no result, and no fault of the program. */
static weir_status start_failure(const process *p, weir_error *err)
{
    const int start_errno = p->start_errno;

    if (p->no_memory) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    if (!p->over || p->lost || start_errno == 0) {
        return WEIR_OK;
    }
    return weir__fail(err, start_errno == EBUSY ? WEIR_EBUSY : WEIR_EIO,
                      "could not start a program: errno %d", start_errno);
}

static weir_status command_check(const char *command, weir_error *err)
{
    const size_t len = strlen(command);

    return len >= 1 && len <= CHILD_COMMAND_BYTES_MAX
               ? WEIR_OK
               : weir__fail(err, WEIR_EINVAL, "the command has %zu bytes, allowed 1 to %d", len,
                            (int)CHILD_COMMAND_BYTES_MAX);
}

/* Ended by its supervisor. */
static weir_status expired_explain(child_result *out, const process *p, weir_error *err)
{
    out->expired = true;
    return explain_as(out, CHILD_INTERRUPTED, p, err,
                      "the handler was ended: its lease was not renewed in time");
}

static bool call_is_stopped(const child_call *call)
{
    struct pollfd fd = { .fd = call->stop_fd > 0 ? call->stop_fd : -1, .events = POLLIN };

    return (call->interrupted != NULL && atomic_load(call->interrupted)) || poll(&fd, 1, 0) > 0;
}

static bool call_has_expired(const child_call *call)
{
    return call->lease != NULL && weir__child_lease_has_ended(call->lease);
}

/* ---- one process per event ------------------------------------------------------------------ */

/* The last line as it is. */
static weir_status last_keep(child_result *out, weir_str line, weir_error *err)
{
    weir__buffer_clear(&out->json);
    if (line.len > 0 && !weir__buffer_add(&out->json, line.ptr, line.len)) {
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    out->reply = (weir_str){ .ptr = out->json.ptr, .len = out->json.len };
    out->kind = CHILD_DONE;
    return WEIR_OK;
}

static weir_status run_judge(child_result *out, const process *p, bool plain, weir_error *err)
{
    const weir_str line = { .ptr = p->last.ptr, .len = p->last.len };
    const int status = p->wait_status;
    bool meant = false;

    if (!p->lost) {
        out->exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (p->expired) {
        out->exit_status = -1;
        return expired_explain(out, p, err);
    }
    if (p->lost || !WIFEXITED(status) || WEXITSTATUS(status) != 0 || p->left_behind) {
        const bool permanent =
            !plain && !p->lost && WIFEXITED(status) && WEXITSTATUS(status) == EXIT_PERMANENT;
        return exit_explain(out, permanent ? CHILD_PERMANENT : CHILD_RETRY, p, "", err);
    }
    if (plain) {
        return last_keep(out, line, err);
    }
    weir_status rc = weir__reply_is_meant(line, &meant, err);
    if (rc == WEIR_OK && meant) {
        rc = reply_judge(out, p, line, &meant, err);
    } else if (rc == WEIR_OK) {
        out->kind = CHILD_DONE;
    }
    return rc;
}

weir_status weir__child_run(child_keeper *k, const char *command, const child_call *call,
                            child_result *out, weir_error *err)
{
    process_turn turn = PROCESS_GO_ON;
    process *p = NULL;
    bool told = false;
    weir_status status = command_check(command, err);

    if (status != WEIR_OK) {
        return status;
    }
    result_reset(out);
    out->exit_status = -1;
    if (call_is_stopped(call)) {
        return explain_as(out, CHILD_INTERRUPTED, NULL, err, "interrupted before the handler ran");
    }
    if (call_has_expired(call)) {
        return expired_explain(out, NULL, err);
    }
    status = weir__process_start(&p, k, command, call, err);
    if (status != WEIR_OK) {
        return status;
    }
    weir__process_question(p, false);
    while (turn == PROCESS_GO_ON && !p->over && !p->flooded && !p->no_memory) {
        turn = weir__process_turn(p, call);
        if (call->started_cb != NULL && !told && p->group != 0) {
            call->started_cb(call->started_ctx, p->group);
            told = true;
        }
    }
    status = start_failure(p, err);
    if (status == WEIR_OK) {
        status = p->over && !p->flooded ? run_judge(out, p, call->plain, err)
                                        : cut_short(out, p, call, turn, false, err);
    }
    weir__process_free(p);
    return status;
}

/* ---- a program that stays ------------------------------------------------------------------- */

weir_status weir__child_open(child **out, child_keeper *k, const char *command, weir_error *err)
{
    const weir_status status = command_check(command, err);

    if (status != WEIR_OK) {
        return status;
    }
    child *c = weir__calloc(1, sizeof *c);
    char *copy = weir__strndup(command, strlen(command));
    if (c == NULL || copy == NULL) {
        weir__free(c);
        weir__free(copy);
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    *c = (child){ .keeper = k, .command = copy };
    *out = c;
    return WEIR_OK;
}

void weir__child_close(child *c)
{
    if (c == NULL) {
        return;
    }
    weir__process_free(c->program);
    weir__free(c->command);
    weir__free(c);
}

static bool has_spoken(const process *p)
{
    return p->lines_count > 0 || p->line.len > 0 || p->flooded;
}

static void program_drop(child *c)
{
    weir__process_free(c->program);
    c->program = NULL;
}

static weir_status program_start(child *c, const child_call *call, weir_error *err)
{
    const weir_status status = weir__process_start(&c->program, c->keeper, c->command, call, err);

    if (status == WEIR_OK) {
        weir__process_question(c->program, true);
    }
    return status;
}

/* Makes a program that has answered before ready for a question. One that ended since, or cannot be
 * told or heard any more, is dropped: nobody is to blame for that. *spoke: it wrote something
 * although it was not asked. */
static void program_revisit(child *c, const child_call *call, bool *spoke)
{
    process *p = c->program;

    weir__process_question(p, true);
    weir__process_look(p, call);
    weir__process_drain(p, call);
    *spoke = has_spoken(p);
    if (!*spoke && (p->over || p->stdin_fd < 0 || p->stdout_fd < 0)) {
        program_drop(c);
    }
}

/* Until there is something to judge. A program that has closed its stdout will not answer; how it
 * ended is worth a short wait. */
static process_turn answer_await(process *p, const child_call *call)
{
    process_turn turn = PROCESS_GO_ON;
    child_call bounded = *call;

    while (turn == PROCESS_GO_ON && !p->over && !p->flooded && !p->no_memory &&
           !(p->lines_count > 0 && weir__process_was_given(p, call))) {
        turn = weir__process_turn(p, &bounded);
        if (p->stdout_fd < 0 && bounded.deadline_mono_us == call->deadline_mono_us) {
            const int64_t soon_us =
                weir__clock_mono(weir__clock_machine()) + 2 * (int64_t)SUPERVISOR_LINGER_US;
            bounded.deadline_mono_us =
                soon_us < call->deadline_mono_us ? soon_us : call->deadline_mono_us;
        }
    }
    weir__process_drain(p, call);
    return turn;
}

/* *valid: the program may be asked again. */
static weir_status answer_judge(child_result *out, process *p, const child_call *call,
                                process_turn turn, bool *valid, weir_error *err)
{
    const bool answered = p->lines_count > 0 && weir__process_was_given(p, call);

    *valid = false;
    if (p->flooded) {
        return cut_short(out, p, call, turn, false, err);
    }
    if (answered && (p->lines_count > 1 || p->line.len > 0)) {
        weir__process_end(p, call);
        return explain_as(out, CHILD_RETRY, p, err,
                          "the handler wrote more than one line for one event and was killed");
    }
    if (answered) {
        return reply_judge(out, p, (weir_str){ .ptr = p->last.ptr, .len = p->last.len }, valid,
                           err);
    }
    if (p->expired) {
        weir__process_end(p, call);
        return expired_explain(out, p, err);
    }
    if (p->over) {
        return exit_explain(out, CHILD_RETRY, p, " without answering", err);
    }
    if (p->stdout_fd < 0 && turn != PROCESS_STOPPED) {
        weir__process_end(p, call);
        return explain_as(out, CHILD_RETRY, p, err,
                          "the handler closed its stdout without answering and was killed");
    }
    return cut_short(out, p, call, turn, true, err);
}

/* Something had been written since the last answer: it cannot be told from an answer to the next
 * question, which is why that is not asked. */
static weir_status unasked_explain(child_result *out, process *p, const child_call *call,
                                   weir_error *err)
{
    const weir_buffer *line = p->line.len > 0 ? &p->line : &p->last;
    const int len = (int)(line->len < LINE_SHOWN_BYTES ? line->len : LINE_SHOWN_BYTES);
    const weir_status status =
        explain_as(out, CHILD_RETRY, p, err,
                   "the handler wrote to stdout without being asked and was killed: "
                   "%.*s",
                   len, len == 0 ? "" : line->ptr);

    weir__process_end(p, call);
    return status;
}

/* Asks the program, which is started if there is none. *dropped: it had ended before it was given
 * anything of the question, and there is no result. */
static weir_status program_ask(child *c, const child_call *call, child_result *out, bool *dropped,
                               weir_error *err)
{
    const bool fresh = c->program == NULL;
    bool valid = false;
    weir_status status = fresh ? program_start(c, call, err) : WEIR_OK;

    *dropped = false;
    if (status != WEIR_OK) {
        return status;
    }
    process *p = c->program;
    if (!fresh) {
        weir__process_lease(p, call->lease);
    }
    const process_turn turn = answer_await(p, call);
    *dropped = !fresh && p->over && p->written == 0 && !has_spoken(p) && !p->no_memory;
    if (!*dropped) {
        status = start_failure(p, err);
    }
    if (!*dropped && status == WEIR_OK) {
        status = answer_judge(out, p, call, turn, &valid, err);
    }
    if (valid) {
        weir__process_lease(p, NULL); /* an idle program runs under nothing */
    } else {
        program_drop(c);
    }
    return status;
}

weir_status weir__child_ask(child *c, const child_call *call, child_result *out, weir_error *err)
{
    bool dropped, spoke = false;
    weir_status status;

    result_reset(out);
    if (call_is_stopped(call)) {
        return explain_as(out, CHILD_INTERRUPTED, NULL, err, "interrupted before the handler ran");
    }
    if (call_has_expired(call)) {
        return expired_explain(out, NULL, err);
    }
    if (c->program != NULL) {
        program_revisit(c, call, &spoke);
    }
    if (spoke) {
        status = unasked_explain(out, c->program, call, err);
        program_drop(c);
        return status;
    }
    status = program_ask(c, call, out, &dropped, err);
    return dropped ? program_ask(c, call, out, &dropped, err) : status;
}
