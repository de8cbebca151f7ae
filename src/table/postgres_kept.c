/* postgres_kept.c - see postgres_kept.h. */
#include "table/postgres_kept.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 48 };

static void name_of(const kept_text *text, char name[NAME_BYTES])
{
    (void)snprintf(name, NAME_BYTES, "weir_kept_%016" PRIx64 "_%u", weir__pg_text_hash(text->sql),
                   text->number);
}

static bool worth_keeping(const pg_conn *conn, const char *sql, const pg_plain *plain)
{
    bool texts = true; /* values of a type of their own would be part of what is prepared */
    for (int i = 0; i < plain->count && texts; i++) {
        texts = plain->types[i] == 0;
    }
    return texts && weir__pg_prepares(conn) && strlen(sql) <= KEPT_TEXT_BYTES_MAX;
}

static kept_text *find(postgres_kept *k, const char *sql)
{
    for (size_t i = 0; i < KEPT_STATEMENTS_MAX; i++) {
        if (k->texts[i].sql != NULL && strcmp(k->texts[i].sql, sql) == 0) {
            return &k->texts[i];
        }
    }
    return NULL;
}

static void forget(kept_text *text)
{
    weir__free(text->sql);
    *text = (kept_text){ 0 };
}

/* What was not prepared has nothing in the server; the rest stays there under a name that is not
 * used again, unless it is dropped here. */
static weir_status give_way(kept_text *text, pg_conn *conn, int64_t answer_us, weir_error *err)
{
    char sql[NAME_BYTES + sizeof "DEALLOCATE "];
    char name[NAME_BYTES];
    weir_status status = WEIR_OK;
    if (text->number > 0) {
        name_of(text, name);
        (void)snprintf(sql, sizeof sql, "DEALLOCATE %s", name);
        status = weir__pg_run_script(conn, sql, answer_us, err);
        if (status != WEIR_OK && weir__pg_prepared_gone(conn)) {
            status = WEIR_OK;
        }
    }
    forget(text);
    return status == WEIR_EUNKNOWN ? weir__wrap(err, WEIR_EUNAVAILABLE, "before a statement")
                                   : status;
}

/* Out of memory only means that it is not prepared the next time either. */
static weir_status note(postgres_kept *k, pg_conn *conn, const char *sql, int64_t answer_us,
                        weir_error *err)
{
    kept_text *text = &k->texts[k->next];
    k->next = (k->next + 1) % KEPT_STATEMENTS_MAX;
    const weir_status status = give_way(text, conn, answer_us, err);
    if (status == WEIR_OK) {
        text->sql = weir__strndup(sql, strlen(sql));
    }
    return status;
}

static weir_status prepare(postgres_kept *k, kept_text *text, pg_conn *conn, const pg_plain *plain,
                           int64_t answer_us, weir_error *err)
{
    char name[NAME_BYTES];
    text->number = ++k->number;
    name_of(text, name);
    const weir_status status = weir__pg_prepare_plain(conn, name, text->sql, plain, answer_us, err);
    return status == WEIR_EUNKNOWN ? weir__wrap(err, WEIR_EUNAVAILABLE, "prepare a statement")
                                   : status;
}

static weir_status run_by_name(postgres_kept *k, kept_text *text, pg_conn *conn,
                               const pg_plain *plain, int64_t answer_us, PGresult **out,
                               weir_error *err)
{
    char name[NAME_BYTES];
    if (text->number == 0) {
        const weir_status status = prepare(k, text, conn, plain, answer_us, err);
        if (status != WEIR_OK) {
            forget(text);
            return status; /* as it would have been refused without a name */
        }
    }
    name_of(text, name);
    return weir__pg_run_prepared(conn, name, plain, answer_us, out, err);
}

weir_status weir__table_kept_run(postgres_kept *k, pg_conn *conn, const char *sql,
                                 const pg_plain *plain, int64_t answer_us, PGresult **out,
                                 weir_error *err)
{
    weir_status status = WEIR_OK;
    *out = NULL;
    const bool keep = worth_keeping(conn, sql, plain);
    kept_text *text = keep ? find(k, sql) : NULL;
    if (text != NULL) {
        status = run_by_name(k, text, conn, plain, answer_us, out, err);
        if (status == WEIR_OK || !weir__pg_prepared_gone(conn)) {
            return status;
        }
        forget(text);
    } else if (keep) {
        status = note(k, conn, sql, answer_us, err);
        if (status != WEIR_OK) {
            return status;
        }
    }
    return weir__pg_run_plain(conn, sql, plain, answer_us, out, err);
}

void weir__table_kept_free(postgres_kept *k)
{
    for (size_t i = 0; i < KEPT_STATEMENTS_MAX; i++) {
        forget(&k->texts[i]);
    }
}
