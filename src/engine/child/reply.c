/* reply.c - see reply.h. Texts of a reply are slices of the result's `json`, which is not touched
 * again once they are taken, or copies in its arena where they had escapes. */
#include "engine/child/reply.h"

#include "base/error.h"
#include "base/json.h"
#include "base/str.h"

enum { NAME_SHOWN_BYTES = 200, VALUE_SHOWN_BYTES = 100 };

enum { REPLY_OK, REPLY_RETRY, REPLY_PERMANENT, REPLY_DEFER, REPLY_APPEND, REPLY_MEMBERS };
static const char *const reply_members[REPLY_MEMBERS] = { "ok", "retry", "permanent", "defer",
                                                          "append" };
enum { ITEM_STREAM, ITEM_NAME, ITEM_DATA, ITEM_META, ITEM_EXPECT, ITEM_MEMBERS };
static const char *const item_members[ITEM_MEMBERS] = { "stream", "name", "data", "meta",
                                                        "expect" };

static weir_status no_memory(weir_error *err)
{
    return weir__fail(err, WEIR_ENOMEM, "out of memory");
}

static int text_shown(size_t len, int most)
{
    return len < (size_t)most ? (int)len : most;
}

/* The index of a member, or `count`. The name is inside an accepted text: its quotes are around it,
 * and it may have escapes. */
static int member_of(const char *const *names, int count, weir_str name)
{
    const weir_str quoted = { .ptr = name.ptr - 1, .len = name.len + 2 };
    int i = 0;

    while (i < count && !weir__json_string_is(quoted, weir__str(names[i]))) {
        i++;
    }
    return i;
}

/* The values of the members of an object by their index; left out: an empty one. */
static weir_status members_take(const char *const *names, int count, weir_str object,
                                weir_str *values, weir_error *err)
{
    weir_json_members it = weir__json_members(object);

    while (weir__json_members_next(&it)) {
        const int member = member_of(names, count, it.name);
        if (member == count) {
            return weir__fail(err, WEIR_EINVAL, "unknown member \"%.*s\"",
                              text_shown(it.name.len, NAME_SHOWN_BYTES), it.name.ptr);
        }
        if (values[member].len > 0) {
            return weir__fail(err, WEIR_EINVAL, "\"%s\" is given twice", names[member]);
        }
        values[member] = it.value;
    }
    return WEIR_OK;
}

static weir_status string_take(child_result *out, const char *member, weir_str value,
                               weir_str *text, weir_error *err)
{
    if (value.len == 0 || weir__json_type(value) != WEIR_JSON_STRING) {
        return weir__fail(err, WEIR_EINVAL,
                          value.len == 0 ? "\"%s\" is missing" : "\"%s\" must be a string", member);
    }
    if (memchr(value.ptr, '\\', value.len) == NULL) {
        *text = (weir_str){ .ptr = value.ptr + 1, .len = value.len - 2 };
        return WEIR_OK;
    }
    weir_buffer decoded = { .len = 0 };
    char *copy = NULL;
    if (weir__json_string_decode(value, &decoded)) {
        copy = weir__arena_copy(&out->arena, decoded.ptr, decoded.len);
        *text = (weir_str){ .ptr = copy, .len = decoded.len };
    }
    weir__buffer_free(&decoded);
    return copy == NULL ? no_memory(err) : WEIR_OK;
}

/* Words are strings and versions are numbers, as everywhere in Weir. */
static weir_status expect_take(weir_str value, child_append *append, weir_error *err)
{
    static const char *const words[] = {
        [WEIR_EXPECT_ANY] = "any", [WEIR_EXPECT_NONE] = "none", [WEIR_EXPECT_EXISTS] = "exists"
    };

    if (value.len == 0) {
        append->expect = WEIR_EXPECT_ANY;
        return WEIR_OK;
    }
    for (int32_t i = WEIR_EXPECT_ANY; i <= WEIR_EXPECT_EXISTS; i++) {
        if (weir__json_type(value) == WEIR_JSON_STRING &&
            weir__json_string_is(value, weir__str(words[i]))) {
            append->expect = i;
            return WEIR_OK;
        }
    }
    if (weir__json_type(value) == WEIR_JSON_NUMBER && weir__str_to_i64(value, &append->version) &&
        append->version >= 0) {
        append->expect = WEIR_EXPECT_EXACT;
        return WEIR_OK;
    }
    return weir__fail(err, WEIR_EINVAL,
                      "\"expect\" must be \"any\", \"none\", \"exists\" or a version, not %.*s",
                      text_shown(value.len, VALUE_SHOWN_BYTES), value.ptr);
}

static weir_status append_take(child_result *out, weir_str item, child_append *append,
                               weir_error *err)
{
    weir_str values[ITEM_MEMBERS] = { { .ptr = NULL } };
    weir_status status;

    *append = (child_append){ .expect = WEIR_EXPECT_ANY };
    if (weir__json_type(item) != WEIR_JSON_OBJECT) {
        return weir__fail(err, WEIR_EINVAL, "expected a JSON object");
    }
    status = members_take(item_members, ITEM_MEMBERS, item, values, err);
    if (status == WEIR_OK) {
        status = string_take(out, "stream", values[ITEM_STREAM], &append->stream, err);
    }
    if (status == WEIR_OK) {
        status = string_take(out, "name", values[ITEM_NAME], &append->name, err);
    }
    if (status == WEIR_OK && (append->stream.len == 0 || append->name.len == 0)) {
        status = weir__fail(err, WEIR_EINVAL, "\"%s\" is empty",
                            append->stream.len == 0 ? "stream" : "name");
    }
    append->data = values[ITEM_DATA];
    append->meta = values[ITEM_META];
    return status != WEIR_OK ? status : expect_take(values[ITEM_EXPECT], append, err);
}

static weir_status appends_take(child_result *out, weir_str list, weir_error *err)
{
    weir_status status = WEIR_OK;
    size_t count = 0;

    if (weir__json_type(list) != WEIR_JSON_ARRAY) {
        return weir__fail(err, WEIR_EINVAL, "\"append\" must be an array");
    }
    weir_json_members it = weir__json_elements(list);
    while (weir__json_elements_next(&it)) {
        count++;
    }
    if (count == 0) {
        return WEIR_OK;
    }
    /* At most one for two bytes of a line: no overflow. */
    child_append *appends = weir__arena_alloc(&out->arena, count * sizeof *appends);
    if (appends == NULL) {
        return no_memory(err);
    }
    it = weir__json_elements(list);
    for (size_t i = 0; i < count && status == WEIR_OK && weir__json_elements_next(&it); i++) {
        status = append_take(out, it.value, &appends[i], err);
        if (status != WEIR_OK) {
            status = weir__wrap(err, status, "item %zu of \"append\"", i + 1);
        }
    }
    out->appends = appends;
    out->appends_count = count;
    return status;
}

static weir_status ok_take(child_result *out, weir_str ok, weir_str append, weir_error *err)
{
    out->kind = CHILD_DONE;
    if (weir__json_type(ok) != WEIR_JSON_TRUE) {
        return weir__fail(err, WEIR_EINVAL, "\"ok\" must be true");
    }
    return append.len == 0 ? WEIR_OK : appends_take(out, append, err);
}

static weir_status defer_take(child_result *out, weir_str value, weir_error *err)
{
    weir_str text;
    weir_status status = string_take(out, "defer", value, &text, err);

    out->kind = CHILD_DEFER;
    if (status == WEIR_OK && !weir__time_from_text(text, &out->defer_us)) {
        status = weir__fail(err, WEIR_EINVAL, "\"defer\" must be a time as in RFC 3339, not %.*s",
                            text_shown(value.len, VALUE_SHOWN_BYTES), value.ptr);
    }
    return status;
}

/* Which of the four answers it is; REPLY_APPEND: none or several, *err says so. */
static int answer_of(const weir_str *values, weir_error *err)
{
    int answer = REPLY_APPEND;

    for (int i = REPLY_OK; i < REPLY_APPEND; i++) {
        if (values[i].len > 0 && answer != REPLY_APPEND) {
            (void)weir__fail(err, WEIR_EINVAL, "both \"%s\" and \"%s\" are given",
                             reply_members[answer], reply_members[i]);
            return REPLY_APPEND;
        }
        if (values[i].len > 0) {
            answer = i;
        }
    }
    if (answer == REPLY_APPEND) {
        (void)weir__fail(err, WEIR_EINVAL,
                         "expected one of \"ok\", \"retry\", \"permanent\" and \"defer\"");
    } else if (answer != REPLY_OK && values[REPLY_APPEND].len > 0) {
        (void)weir__fail(err, WEIR_EINVAL, "\"append\" goes with \"ok\" only, not with \"%s\"",
                         reply_members[answer]);
        return REPLY_APPEND;
    }
    return answer;
}

weir_status weir__reply_take(child_result *out, weir_str line, reply_text *text, weir_error *err)
{
    weir_str values[REPLY_MEMBERS] = { { .ptr = NULL } };
    weir_json_type type;
    weir_status status;

    *text = (reply_text){ .why = { .ptr = NULL } };
    weir__buffer_clear(&out->json);
    status = weir__json_compact_envelope(line, &out->json, &type, err);
    if (status != WEIR_OK) {
        return status;
    }
    if (type != WEIR_JSON_OBJECT) {
        return weir__fail(err, WEIR_EINVAL, "expected a JSON object");
    }
    out->reply = (weir_str){ .ptr = out->json.ptr, .len = out->json.len };
    status = members_take(reply_members, REPLY_MEMBERS, out->reply, values, err);
    if (status != WEIR_OK) {
        return status;
    }
    switch (answer_of(values, err)) {
    case REPLY_OK:
        return ok_take(out, values[REPLY_OK], values[REPLY_APPEND], err);
    case REPLY_RETRY:
        out->kind = CHILD_RETRY;
        return string_take(out, "retry", values[REPLY_RETRY], &text->why, err);
    case REPLY_PERMANENT:
        out->kind = CHILD_PERMANENT;
        return string_take(out, "permanent", values[REPLY_PERMANENT], &text->why, err);
    case REPLY_DEFER:
        return defer_take(out, values[REPLY_DEFER], err);
    default:
        return WEIR_EINVAL;
    }
}

weir_status weir__reply_is_meant(weir_str line, bool *meant, weir_error *err)
{
    weir_buffer json = { .len = 0 };
    weir_json_type type;
    size_t at = 0;
    bool found = false;

    while (at < line.len && (line.ptr[at] == ' ' || line.ptr[at] == '\t')) {
        at++;
    }
    if (at == line.len || line.ptr[at] != '{') {
        *meant = false;
        return WEIR_OK;
    }
    const weir_status status = weir__json_compact_envelope(line, &json, &type, err);
    if (status == WEIR_OK) {
        weir_json_members it = weir__json_members((weir_str){ .ptr = json.ptr, .len = json.len });
        while (!found && weir__json_members_next(&it)) {
            found = member_of(reply_members, REPLY_MEMBERS, it.name) < REPLY_MEMBERS;
        }
    } else {
        at++;
        while (at < line.len && (line.ptr[at] == ' ' || line.ptr[at] == '\t')) {
            at++;
        }
        found = at < line.len && line.ptr[at] == '"';
    }
    weir__buffer_free(&json);
    if (status == WEIR_ENOMEM) {
        return status;
    }
    *meant = found;
    return WEIR_OK;
}
