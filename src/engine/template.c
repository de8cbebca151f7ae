/* template.c - see template.h.
 *
 * A template is opened once and filled for every event, so opening cuts it into pieces: texts with
 * the doubled braces undone, and placeholders with the path to their member. All of it is one
 * block.
 */
#include "engine/template.h"

#include "base/error.h"
#include "base/json.h"
#include "base/str.h"

#include <string.h>

typedef enum piece_kind {
    PIECE_TEXT,
    PIECE_STREAM,
    PIECE_CATEGORY,
    PIECE_NAME,
    PIECE_DATA,
} piece_kind;

typedef struct piece {
    piece_kind kind;
    weir_str text;    /* TEXT: it; DATA: the path as written, "data.a.b"             */
    const char *path; /* DATA: its members after "data", each ended by a NUL          */
    size_t members_count;
} piece;

struct template_text {
    size_t pieces_count;
    store_rule rule;
    /* After the struct: the pieces, then the template's text twice: once to be cut into texts, once
     * with every path's dots replaced by NULs. */
    piece pieces[];
};

static const char allowed[] = "allowed are {stream}, {category}, {name} and {data.MEMBER}; a brace "
                              "is written {{ or }}";

/* ---- opening ------------------------------------------------------------------------------- */

static bool path_is_whole(weir_str path)
{
    for (size_t i = 0; i < path.len; i++) {
        if (path.ptr[i] == '.' && (i + 1 == path.len || path.ptr[i + 1] == '.')) {
            return false;
        }
    }
    return path.len > 0 && path.ptr[0] != '.';
}

/* The placeholder whose inside is text[start..end). members: room for its path. */
static weir_status placeholder_open(piece *p, weir_str text, size_t start, size_t end,
                                    char *members, weir_error *err)
{
    const weir_str inside = { .ptr = text.ptr + start, .len = end - start };
    const weir_str data = weir__str("data.");

    *p = (piece){ .text = inside };
    if (weir__str_equal(inside, weir__str("stream"))) {
        p->kind = PIECE_STREAM;
    } else if (weir__str_equal(inside, weir__str("category"))) {
        p->kind = PIECE_CATEGORY;
    } else if (weir__str_equal(inside, weir__str("name"))) {
        p->kind = PIECE_NAME;
    } else if (weir__str_starts_with(inside, data) &&
               path_is_whole((weir_str){ inside.ptr + data.len, inside.len - data.len })) {
        p->kind = PIECE_DATA;
        p->path = members + start + data.len;
        p->members_count = 1;
        for (size_t i = start + data.len; i < end; i++) {
            if (members[i] == '.') {
                members[i] = '\0';
                p->members_count++;
            }
        }
        members[end] = '\0'; /* the closing brace */
    } else {
        return weir__fail(err, WEIR_EINVAL, "unknown placeholder \"{%.*s}\" at byte %zu: %s",
                          (int)inside.len, inside.ptr, start - 1, allowed);
    }
    return WEIR_OK;
}

static void text_add(template_text *t, char *cut, size_t *used, char ch)
{
    piece *last = t->pieces_count == 0 ? NULL : &t->pieces[t->pieces_count - 1];
    if (last == NULL || last->kind != PIECE_TEXT) {
        last = &t->pieces[t->pieces_count++];
        *last = (piece){ .kind = PIECE_TEXT, .text = { .ptr = cut + *used, .len = 0 } };
    }
    cut[(*used)++] = ch;
    last->text.len++;
}

/* Cuts `text` into pieces. cut and members: as long as the text; members holds a copy of it. */
static weir_status template_cut(template_text *t, weir_str text, char *cut, char *members,
                                weir_error *err)
{
    size_t used = 0;
    for (size_t i = 0; i < text.len; i++) {
        const char ch = text.ptr[i];
        const bool doubled = i + 1 < text.len && text.ptr[i + 1] == ch;
        if (ch != '{' && ch != '}') {
            text_add(t, cut, &used, ch);
        } else if (doubled) {
            text_add(t, cut, &used, ch);
            i++;
        } else if (ch == '}') {
            return weir__fail(err, WEIR_EINVAL, "'}' without '{' at byte %zu: %s", i, allowed);
        } else {
            const char *end = memchr(text.ptr + i, '}', text.len - i);
            if (end == NULL) {
                return weir__fail(err, WEIR_EINVAL, "'{' without '}' at byte %zu: %s", i, allowed);
            }
            const size_t end_at = (size_t)(end - text.ptr);
            const weir_status status =
                placeholder_open(&t->pieces[t->pieces_count], text, i + 1, end_at, members, err);
            if (status != WEIR_OK) {
                return status;
            }
            t->pieces_count++;
            i = end_at;
        }
    }
    return WEIR_OK;
}

/* A rule promises that a target's events are those with one value, so the text must tell every two
 * values apart: it does when the value stands in it once, between constant texts. */
static store_rule rule_of(const template_text *t)
{
    size_t placeholders = 0;
    piece_kind only = PIECE_TEXT;
    for (size_t i = 0; i < t->pieces_count; i++) {
        if (t->pieces[i].kind != PIECE_TEXT) {
            only = t->pieces[i].kind;
            placeholders++;
        }
    }
    if (placeholders > 1) {
        return STORE_RULE_WORK;
    }
    switch (only) {
    case PIECE_TEXT:
        return STORE_RULE_CONSTANT;
    case PIECE_STREAM:
        return STORE_RULE_STREAM;
    case PIECE_CATEGORY:
        return STORE_RULE_CATEGORY;
    case PIECE_NAME:
        return STORE_RULE_NAME;
    case PIECE_DATA:
        break;
    }
    return STORE_RULE_WORK;
}

/* No more pieces than this: a placeholder has at least six bytes, and a text before it. */
static size_t pieces_max(weir_str text)
{
    return text.len / 3 + 2;
}

weir_status weir__template_open(template_text **out, weir_str text, weir_error *err)
{
    if (text.len == 0 || text.len > TEMPLATE_BYTES_MAX) {
        return weir__fail(err, WEIR_EINVAL, "template has %zu bytes, allowed 1 to %d", text.len,
                          TEMPLATE_BYTES_MAX);
    }
    /* What no name may have, no filled template can get rid of. */
    const size_t valid = weir__utf8_valid_prefix(text.ptr, text.len);
    if (valid != text.len) {
        return weir__fail(err, WEIR_EINVAL, "template is not valid UTF-8 at byte %zu", valid);
    }
    for (size_t i = 0; i < text.len; i++) {
        if ((unsigned char)text.ptr[i] < 0x20 || text.ptr[i] == 0x7f) {
            return weir__fail(err, WEIR_EINVAL, "template has a control character at byte %zu", i);
        }
    }
    const size_t pieces_bytes = pieces_max(text) * sizeof(piece);
    template_text *t = weir__calloc(1, sizeof *t + pieces_bytes + 3 * text.len);
    if (t == NULL) {
        return weir__fail(err, WEIR_ENOMEM, "could not allocate a template");
    }
    char *own = (char *)t + sizeof *t + pieces_bytes;
    char *cut = own + text.len;
    char *members = cut + text.len;
    memcpy(own, text.ptr, text.len);
    memcpy(members, text.ptr, text.len);

    const weir_status status =
        template_cut(t, (weir_str){ .ptr = own, .len = text.len }, cut, members, err);
    if (status != WEIR_OK) {
        weir__free(t);
        return status;
    }
    t->rule = rule_of(t);
    *out = t;
    return WEIR_OK;
}

void weir__template_close(template_text *t)
{
    weir__free(t);
}

/* ---- filling ------------------------------------------------------------------------------- */

store_rule weir__template_rule(const template_text *t)
{
    return t->rule;
}

bool weir__template_reads_data(const template_text *t)
{
    for (size_t i = 0; i < t->pieces_count; i++) {
        if (t->pieces[i].kind == PIECE_DATA) {
            return true;
        }
    }
    return false;
}

weir_str weir__template_value(const template_text *t, const weir_event *e)
{
    switch (t->rule) {
    case STORE_RULE_STREAM:
        return e->stream;
    case STORE_RULE_CATEGORY:
        return weir__category(e->stream);
    case STORE_RULE_NAME:
        return e->name;
    case STORE_RULE_CONSTANT:
    case STORE_RULE_WORK:
        break;
    }
    return (weir_str){ 0 };
}

static const char *type_text(weir_json_type type)
{
    switch (type) {
    case WEIR_JSON_NULL:
        return "null";
    case WEIR_JSON_FALSE:
    case WEIR_JSON_TRUE:
        return "a boolean";
    case WEIR_JSON_NUMBER:
        return "a number";
    case WEIR_JSON_STRING:
        return "a string";
    case WEIR_JSON_ARRAY:
        return "an array";
    case WEIR_JSON_OBJECT:
        return "an object";
    }
    return "something else";
}

/* Adds the member that the piece names. */
static weir_status member_add(const piece *p, weir_str data, weir_buffer *out, weir_error *err)
{
    weir_str value = data;
    const char *member = p->path;
    for (size_t i = 0; i < p->members_count; i++) {
        if (!weir__json_get(value, member, &value)) {
            return weir__fail(err, WEIR_EINVAL, "the event has no \"%.*s\"", (int)p->text.len,
                              p->text.ptr);
        }
        member += strlen(member) + 1;
    }
    const weir_json_type type = weir__json_type(value);
    switch (type) {
    case WEIR_JSON_STRING:
        if (value.len > TEMPLATE_RESULT_BYTES_MAX) {
            return weir__fail(err, WEIR_EINVAL, "\"%.*s\" has %zu bytes, allowed %d",
                              (int)p->text.len, p->text.ptr, value.len, TEMPLATE_RESULT_BYTES_MAX);
        }
        return weir__json_string_decode(value, out) ? WEIR_OK : WEIR_ENOMEM;
    case WEIR_JSON_NUMBER:
    case WEIR_JSON_TRUE:
    case WEIR_JSON_FALSE:
        return weir__buffer_add(out, value.ptr, value.len) ? WEIR_OK : WEIR_ENOMEM;
    case WEIR_JSON_NULL:
    case WEIR_JSON_ARRAY:
    case WEIR_JSON_OBJECT:
        break;
    }
    return weir__fail(err, WEIR_EINVAL,
                      "\"%.*s\" of the event is %s, allowed are strings, numbers and booleans",
                      (int)p->text.len, p->text.ptr, type_text(type));
}

static weir_status piece_add(const piece *p, const weir_event *e, weir_buffer *out, weir_error *err)
{
    weir_str text = p->text;
    switch (p->kind) {
    case PIECE_DATA:
        return member_add(p, e->data, out, err);
    case PIECE_STREAM:
        text = e->stream;
        break;
    case PIECE_CATEGORY:
        text = weir__category(e->stream);
        break;
    case PIECE_NAME:
        text = e->name;
        break;
    case PIECE_TEXT:
        break;
    }
    return weir__buffer_add(out, text.ptr, text.len) ? WEIR_OK : WEIR_ENOMEM;
}

weir_status weir__template_fill(const template_text *t, const weir_event *e, weir_arena *arena,
                                weir_str *out, weir_error *err)
{
    /* Most templates are a text or a placeholder alone: nothing to copy. */
    if (t->pieces_count == 1 && t->pieces[0].kind != PIECE_DATA) {
        *out = t->rule == STORE_RULE_CONSTANT ? t->pieces[0].text : weir__template_value(t, e);
        return WEIR_OK;
    }
    weir_buffer filled = { 0 };
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < t->pieces_count && status == WEIR_OK; i++) {
        status = piece_add(&t->pieces[i], e, &filled, err);
        if (status == WEIR_OK && filled.len > TEMPLATE_RESULT_BYTES_MAX) {
            status = weir__fail(err, WEIR_EINVAL, "the filled template has more than %d bytes",
                                TEMPLATE_RESULT_BYTES_MAX);
        }
    }
    if (status == WEIR_OK) {
        const char *copy =
            weir__arena_copy(arena, filled.ptr == NULL ? "" : filled.ptr, filled.len);
        status = copy == NULL ? WEIR_ENOMEM : WEIR_OK;
        if (copy != NULL) {
            *out = (weir_str){ .ptr = copy, .len = filled.len };
        }
    }
    if (status == WEIR_ENOMEM) {
        status = weir__fail(err, WEIR_ENOMEM, "could not fill a template");
    }
    weir__buffer_free(&filled);
    return status;
}
