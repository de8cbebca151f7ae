/* checkpoint.c - a checkpoint of a store: under the side lock, with a new mark in the database. */
#include "store/sqlite/seal.h"

void weir__sqlite_checkpoint(sqlite_store *s)
{
    if (weir__sqlite_checkpoint_begin(&s->database, &s->checkpointer) && weir__seal_renew(s) &&
        weir__sqlite_checkpoint_run(&s->database, &s->writer, &s->checkpointer)) {
        weir__seal_written(s);
    }
}
