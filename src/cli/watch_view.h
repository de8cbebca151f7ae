/* watch_view.h - what a full screen shows and what keys do to it: tables of rows with a cursor, or
 * a text over them. It knows no terminal and no store.
 *
 * Must stay true:
 *   1. The cursor is on a row that is shown, if there is one. Once it was moved it stays with its
 *      row when rows come, go or change places; at the top it stays at the top.
 *   2. Rows are copies: whoever read them from a store may free what it read.
 *   3. What is half read is not shown: rows come in sets.
 *   4. No line has more columns than the screen, unless every column is wanted (--wide).
 */
#ifndef WEIR_CLI_WATCH_VIEW_H
#define WEIR_CLI_WATCH_VIEW_H

#include "cli/keys.h"
#include "report/report.h"

enum {
    VIEW_TABLES_MAX = 4,
    VIEW_FILTER_BYTES = 120,
    VIEW_GUTTER = 2, /* columns before a row, for the cursor */
};

/*   LIST ----/----> TYPING --Enter, Esc--> LIST
 *     \---Enter---> TEXT ----q, Esc------> LIST
 *      \----?-----> TEXT                              q, Esc: VIEW_QUIT */
typedef enum view_mode {
    VIEW_LIST,
    VIEW_TYPING, /* a filter */
    VIEW_TEXT,   /* an explanation, or help */
} view_mode;

/* What whoever runs the view has to do after a key. */
typedef enum view_action {
    VIEW_DRAW,
    VIEW_ORDER,   /* the order is another one: lay out, and draw */
    VIEW_LOOK,    /* the filter is another one: read anew, lay out, and draw */
    VIEW_EXPLAIN, /* weir__view_key_of the cursor, then weir__view_show */
    VIEW_QUIT,
} view_action;

typedef struct view_row {
    weir_str key; /* what explains it; in the arena */
    const report_field *fields;
} view_row;

/* Rows that were read together. */
typedef struct view_set {
    weir_arena arena;
    struct {
        weir_buffer rows; /* of view_row, in the order that is shown unless a column is chosen */
        size_t rows_count;
        size_t fields_count; /* of every row */
    } tables[VIEW_TABLES_MAX];
} view_set;

/* How the rows of a table are ordered. */
typedef struct view_order {
    bool fixed;  /* one order only */
    size_t sort; /* 1 + field; 0: the order in which rows were added */
    bool reversed;
} view_order;

/* A line of the list. */
typedef struct view_line {
    size_t at, len;      /* in the list's text */
    const view_row *row; /* NULL: a head, or empty */
    size_t table;
} view_line;

typedef struct watch_view {
    const char *order; /* of rows if no column is chosen, such as "name"; borrowed */
    view_mode mode;
    size_t tables_count; /* at most VIEW_TABLES_MAX */
    view_order orders[VIEW_TABLES_MAX];
    view_set sets[2]; /* one that is shown, and one that is being read */
    size_t set;       /* the first of them */
    char filter[VIEW_FILTER_BYTES];
    size_t filter_bytes;
    /* the list as it is laid out */
    weir_buffer list, lines; /* text; of view_line */
    size_t lines_count, rows_shown;
    size_t head_lines; /* stay when the rest is scrolled */
    size_t top;        /* the first line that is shown below those */
    size_t cursor;     /* a line; SIZE_MAX: there is no row */
    weir_buffer kept;  /* key of the cursor's row, while it stays with that */
    size_t kept_table;
    bool keeps;
    /* the text over it */
    weir_buffer text;
    size_t text_lines, text_top;
    weir_buffer title;
    size_t page; /* lines between header and footer, when drawn last */
    /* what is drawn */
    weir_buffer frame; /* text of the lines that are made for it */
    weir_buffer rows;  /* of weir_str */
} watch_view;

void weir__view_free(watch_view *v);
/* Begins to read anew. What is shown stays until weir__view_commit, which shows what was added
 * since; weir__view_lay_out follows. */
void weir__view_begin(watch_view *v);
void weir__view_commit(watch_view *v);
/* Copies. All rows of a table have the same fields; their names are borrowed for ever. false: out
 * of memory. */
bool weir__view_add(watch_view *v, size_t table, weir_str key, const report_field *fields,
                    size_t count);
/* Whether a text fits the filter: has it in it, in any case. */
bool weir__view_fits(const watch_view *v, weir_str text);
/* After rows, the filter, the order or the screen's width have changed. screen: without the gutter.
 * false: out of memory. */
bool weir__view_lay_out(watch_view *v, const report_screen *screen);
view_action weir__view_key(watch_view *v, const cli_key *key);
/* The key of the row at the cursor. false: there is none. */
bool weir__view_key_of(const watch_view *v, weir_str *key);
/* Shows a text until it is closed, in lines no wider than `columns`. Copies. false: no memory. */
bool weir__view_show(watch_view *v, const char *title, weir_str text, size_t columns);
/* The frame: header, what is shown, and a footer with the keys. *lines: borrowed until the next
 * call; *marked: the line of the cursor, or SIZE_MAX. false: out of memory. */
bool weir__view_frame(watch_view *v, weir_str header, size_t rows, size_t columns,
                      const weir_str **lines, size_t *count, size_t *marked);

#endif
