/* open.c - which store a run is about, and opening it.
 *
 * Reading never makes a store. Writing makes one when it is not there, says so on stderr, and does
 * so only for an append that will be accepted: what would be refused is tried on an empty store in
 * memory first, so that a slip of the pen leaves no file behind.
 */
#include "api/api.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "store/request.h"
#include "store/secrets.h"
#include "store/url.h"

#include <stdlib.h>
#include <string.h>

static weir_status copy_text(const char *text, char **out, weir_error *err)
{
    *out = weir__strndup(text, strlen(text));
    return *out == NULL ? weir__fail(err, WEIR_ENOMEM, "out of memory") : WEIR_OK;
}

/* --insecure becomes a parameter of the URL, so that it reaches everything that is given the URL,
 * such as a handler. */
static weir_status add_insecure(char **url, weir_error *err)
{
    weir_buffer b = { 0 };
    const bool ok = weir__buffer_add_text(&b, *url) &&
                    weir__buffer_add_text(&b, strchr(*url, '?') == NULL ? "?" : "&") &&
                    weir__buffer_add(&b, "insecure=1", sizeof "insecure=1");
    weir__free(*url);
    *url = ok ? b.ptr : NULL;
    if (!ok) {
        weir__buffer_free(&b);
        return weir__fail(err, WEIR_ENOMEM, "out of memory");
    }
    return WEIR_OK;
}

static weir_status url_given(const cli *c, char **url, weir_error *err)
{
    const char *environment = getenv("WEIR_STORE");
    weir_status status;

    if (c->store != NULL) {
        return copy_text(c->store, url, err);
    }
    if (environment != NULL && environment[0] != '\0') {
        return copy_text(environment, url, err);
    }
    status = weir__cli_config_store("weir.yaml", url, err);
    if (status == WEIR_OK && *url == NULL) {
        status = copy_text("sqlite:weir.db", url, err);
    }
    return status;
}

weir_status weir__cli_url(const cli *c, char **url, weir_error *err)
{
    const weir_status status = url_given(c, url, err);
    return status == WEIR_OK && c->insecure && strncmp(*url, "sqlite:", 7) == 0
               ? add_insecure(url, err)
               : status;
}

/* PostgreSQL: the URL for libpq without passwords, and the schema when it is not "weir". */
static bool add_postgres(weir_buffer *b, const store_options *o)
{
    const char *mark = memchr(o->path.ptr, '?', o->path.len) == NULL ? "?" : "&";
    return weir__url_shown(b, o->path) &&
           (o->schema.len == 0 ||
            (weir__buffer_add_text(b, mark) && weir__buffer_add_text(b, "schema=") &&
             weir__buffer_add(b, o->schema.ptr, o->schema.len)));
}

weir_status weir__cli_url_shown(const char *url, char **shown, weir_error *err)
{
    store_url parsed = { 0 };
    weir_buffer b = { 0 };
    weir_status status = weir__url_parse(&parsed, url, err);

    if (status == WEIR_OK) {
        const weir_str path = parsed.options.path;
        const bool ok = strcmp(parsed.scheme, "postgres") == 0
                            ? add_postgres(&b, &parsed.options)
                            : weir__buffer_add_text(&b, parsed.scheme) &&
                                  weir__buffer_add(&b, ":", 1) &&
                                  (path.len == 0 || weir__buffer_add(&b, path.ptr, path.len));
        if (!ok || !weir__buffer_add(&b, "", 1)) {
            status = weir__fail(err, WEIR_ENOMEM, "out of memory");
        } else {
            *shown = b.ptr;
            b = (weir_buffer){ 0 }; /* moved to the caller */
        }
    }
    weir__buffer_free(&b);
    weir__url_free(&parsed);
    return status;
}

/* Opens the store of the run with these flags; a store in memory is always made. */
static weir_status open_with(const cli *c, uint32_t flags, weir **out, weir_error *err)
{
    char *url = NULL;
    weir_status status = weir__cli_url(c, &url, err);

    if (status == WEIR_OK) {
        const weir_options options = { WEIR_OPTIONS_INIT,
                                       .flags = strncmp(url, "memory:", 7) == 0 ? 0 : flags,
                                       .store_url = url, .application = "weir" };
        status = (weir_status)weir_open(&options, out, err);
    }
    weir__free(url);
    return status;
}

weir_status weir__cli_open(const cli *c, int32_t mode, weir **out, weir_error *err)
{
    /* A command that only reads also works where nothing may be written. */
    const uint32_t flags = mode == CLI_OPEN_READ ? WEIR_OPEN_READONLY : WEIR_OPEN_EXISTING;
    weir_status status = open_with(c, flags, out, err);

    if (status == WEIR_EMISUSE && mode == CLI_OPEN_READ) {
        /* A store that an older version made must be upgraded before it can be read. */
        status = open_with(c, WEIR_OPEN_EXISTING, out, err);
    }
    if (status == WEIR_ENOTFOUND && mode == CLI_OPEN_WRITE) {
        *out = NULL;
        return WEIR_OK;
    }
    if (status == WEIR_ENOTFOUND && !weir__error_advised(err)) {
        weir__error_detail(err,
                           "It is created by the first weir append or weir once, or by weir init.");
    }
    return status;
}

weir_status weir__cli_create(const cli *c, weir **out, weir_error *err)
{
    char *url = NULL;
    char *shown = NULL;
    weir_status status = weir__cli_url(c, &url, err);

    if (status == WEIR_OK) {
        status = weir__cli_url_shown(url, &shown, err);
    }
    if (status == WEIR_OK) {
        status = open_with(c, 0, out, err);
    }
    if (status == WEIR_OK && weir__store(*out)->opened == STORE_MADE &&
        strncmp(shown, "memory:", 7) != 0) {
        const bool file = strncmp(shown, "sqlite:", 7) == 0;
        weir__cli_note(c, "created store %s", file ? shown + 7 : shown);
    }
    weir__free(url);
    weir__free(shown);
    return status;
}

weir_status weir__cli_payload_bytes(const cli *c, int64_t *bytes, weir_error *err)
{
    char *url = NULL;
    store_url parsed = { 0 };
    weir_status status = weir__cli_url(c, &url, err);

    if (status == WEIR_OK) {
        status = weir__url_parse(&parsed, url, err);
    }
    if (status == WEIR_OK) {
        *bytes = parsed.options.payload_bytes;
    }
    weir__url_free(&parsed);
    weir__free(url);
    return status;
}

/* What an empty store would say to this append. */
static weir_status plan_rehearse(const cli *c, const weir_append_request *request, weir_error *err)
{
    prepared_append prepared = { 0 };
    store_options options = { .application = "weir", .clock = weir__clock_machine() };
    weir_store *store = NULL;
    store_append *append = &prepared.append;
    weir_status status = weir__cli_payload_bytes(c, &options.payload_bytes, err);

    if (status == WEIR_OK) {
        status =
            weir__append_prepare(&prepared, request, options.payload_bytes, options.clock, err);
    }
    if (status == WEIR_OK) {
        status = weir__memory_open(&store, &options, err);
    }
    if (status == WEIR_OK) {
        append->flags |= STORE_APPEND_DRY_RUN;
        append->err = err;
        status = store->log->append(store, &append, 1, err);
    }
    if (status == WEIR_OK) {
        status = append->status;
    }
    if (store != NULL) {
        store->about->close(store);
    }
    weir__prepared_free(&prepared);
    return status;
}

weir_status weir__cli_append(const cli *c, const weir_append_request *request,
                             const weir_append_result **out, weir_error *err)
{
    weir *w = NULL;
    weir_status status = weir__cli_open(c, CLI_OPEN_WRITE, &w, err);

    if (status == WEIR_OK && w == NULL) {
        status = plan_rehearse(c, request, err);
        if (status == WEIR_OK) {
            status = weir__cli_create(c, &w, err);
        }
    }
    if (status == WEIR_OK) {
        status = (weir_status)weir_append(w, request, out, err);
    }
    weir_close(w);
    return status;
}
