/* libpq.h - libpq, loaded when PostgreSQL is first connected to.
 *
 * libpq brings two dozen libraries with it (TLS, Kerberos, LDAP). Loaded on demand, build/weir
 * stays one file that runs anywhere, and who uses SQLite does not wait for them. Calls look like
 * calls: pq.PQexec(...). libpq's own header gives the types, so a wrong argument does not compile.
 */
#ifndef WEIR_PG_LIBPQ_H
#define WEIR_PG_LIBPQ_H

#include "weir.h"

#include <libpq-fe.h>

/* Every function of libpq that is used. One that is missing here does not compile as pq.NAME. */
#define LIBPQ_FUNCTIONS(X)                                                                         \
    X(PQbackendPID)                                                                                \
    X(PQcancel)                                                                                    \
    X(PQclear)                                                                                     \
    X(PQcmdStatus)                                                                                 \
    X(PQcmdTuples)                                                                                 \
    X(PQconnectPoll)                                                                               \
    X(PQconnectStartParams)                                                                        \
    X(PQconnectionNeedsPassword)                                                                   \
    X(PQconninfo)                                                                                  \
    X(PQconninfoFree)                                                                              \
    X(PQconninfoParse)                                                                             \
    X(PQconsumeInput)                                                                              \
    X(PQerrorMessage)                                                                              \
    X(PQescapeLiteral)                                                                             \
    X(PQexec)                                                                                      \
    X(PQexecParams)                                                                                \
    X(PQfinish)                                                                                    \
    X(PQflush)                                                                                     \
    X(PQfname)                                                                                     \
    X(PQfreeCancel)                                                                                \
    X(PQfreemem)                                                                                   \
    X(PQftype)                                                                                     \
    X(PQgetCancel)                                                                                 \
    X(PQgetResult)                                                                                 \
    X(PQgetisnull)                                                                                 \
    X(PQgetlength)                                                                                 \
    X(PQgetvalue)                                                                                  \
    X(PQhost)                                                                                      \
    X(PQhostaddr)                                                                                  \
    X(PQisBusy)                                                                                    \
    X(PQlibVersion)                                                                                \
    X(PQnfields)                                                                                   \
    X(PQnotifies)                                                                                  \
    X(PQntuples)                                                                                   \
    X(PQparameterStatus)                                                                           \
    X(PQport)                                                                                      \
    X(PQresultErrorField)                                                                          \
    X(PQresultStatus)                                                                              \
    X(PQsendPrepare)                                                                               \
    X(PQsendQuery)                                                                                 \
    X(PQsendQueryParams)                                                                           \
    X(PQsendQueryPrepared)                                                                         \
    X(PQserverVersion)                                                                             \
    X(PQsetErrorVerbosity)                                                                         \
    X(PQsetNoticeReceiver)                                                                         \
    X(PQsetnonblocking)                                                                            \
    X(PQsocket)                                                                                    \
    X(PQstatus)                                                                                    \
    X(PQtransactionStatus)

typedef struct weir_libpq {
/* A declaration has no parentheses around its name. */
#define X(name) __typeof__(name) *name; /* NOLINT(bugprone-macro-parentheses) */
    LIBPQ_FUNCTIONS(X)
#undef X
} weir_libpq;

/* Filled by weir__libpq_load, then immutable. */
extern weir_libpq weir__libpq;
#define pq weir__libpq

/* Loads libpq once per process; cheap when it is there. EUNAVAILABLE: it is not installed, and the
 * message says what to install. Any thread. */
weir_status weir__libpq_load(weir_error *err);

#endif
