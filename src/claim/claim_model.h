/* claim_model.h - a table without rows that has the indexes of another, on which to see what they
 * are good for; made in a transaction that is undone.
 */
#ifndef WEIR_CLAIM_CLAIM_MODEL_H
#define WEIR_CLAIM_CLAIM_MODEL_H

#include "claim/claim_private.h"

/* The parts of a claim. */
typedef enum probe_kind {
    PROBE_READY = 0,
    PROBE_EXPIRED,
    PROBE_HELD, /* counting, for max_per */
    PROBES,
} probe_kind;

/* What a plan does that grows with the table. */
typedef struct probe_cost {
    size_t scans;   /* of all rows */
    size_t sorts;   /* of all that fit */
    size_t filters; /* of rows that an index has found */
} probe_cost;

typedef struct claim_model {
    table_session *s;
    const claim_spec *c; /* on the table itself */
    claim_spec spec;     /* the same on the table without rows */
    table_info table;    /* of the model */
    weir_buffer quoted;  /* its name; owned */
} claim_model;

/* Pre: a transaction is open, m->s and m->c are set and the rest is zero. */
weir_status weir__claim_model_make(claim_model *m, weir_error *err);
void weir__claim_model_free(claim_model *m); /* the transaction is ended by who began it */
/* How the parts of the claim would be run there. Those that it does not have cost nothing. */
weir_status weir__claim_probe(claim_model *m, probe_cost costs[PROBES], weir_error *err);
bool weir__claim_has_probe(const claim_spec *c, probe_kind kind);
/* Runs a statement of which it is not known whether the database takes it. keep: what it did. */
weir_status weir__claim_attempt(claim_model *m, claim_text *t, bool keep, bool *taken,
                                weir_error *err);

/* "name" of "schema"."name". */
weir_str weir__claim_last_part(weir_str quoted);
weir_str weir__claim_buffer_str(const weir_buffer *b);
/* Without blanks around it. */
weir_str weir__claim_trimmed(weir_str s);

#endif
