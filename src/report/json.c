/* json.c - JSON, member by member, into a buffer. Names of members are ours and need no
 * escaping; everything else goes through base/json. */
#include "report/report.h"

#include "base/json.h"
#include "base/utf8.h"

static void json_add(report_json *j, const char *ptr, size_t len)
{
    j->failed = j->failed || !weir__buffer_add(j->buffer, ptr, len);
}

static void member_begin(report_json *j, const char *name)
{
    if (j->comma) {
        json_add(j, ",", 1);
    }
    if (name != NULL) {
        json_add(j, "\"", 1);
        json_add(j, name, strlen(name));
        json_add(j, "\":", 2);
    }
    j->comma = true;
}

void weir__report_json_open(report_json *j, const char *name, char bracket)
{
    member_begin(j, name);
    json_add(j, &bracket, 1);
    j->comma = false;
}

void weir__report_json_close(report_json *j, char bracket)
{
    json_add(j, &bracket, 1);
    j->comma = true;
}

void weir__report_json_str(report_json *j, const char *name, weir_str text)
{
    member_begin(j, name);
    j->failed = j->failed || !weir__json_write_string(j->buffer, text);
}

void weir__report_json_i64(report_json *j, const char *name, int64_t number)
{
    member_begin(j, name);
    j->failed = j->failed || !weir__buffer_add_i64(j->buffer, number);
}

void weir__report_json_bool(report_json *j, const char *name, bool value)
{
    member_begin(j, name);
    json_add(j, value ? "true" : "false", value ? 4 : 5);
}

void weir__report_json_time(report_json *j, const char *name, int64_t time_us)
{
    char text[WEIR_TIME_TEXT_BYTES];

    weir__time_to_text(time_us, text);
    member_begin(j, name);
    json_add(j, "\"", 1);
    json_add(j, text, strlen(text));
    json_add(j, "\"", 1);
}

void weir__report_json_null(report_json *j, const char *name)
{
    member_begin(j, name);
    json_add(j, "null", 4);
}

/* JSON from a store: one value on one line, with invisible characters escaped. */
static void add_value(report_json *j, weir_str text)
{
    weir_buffer value = { 0 };
    j->failed = j->failed || !weir__json_write_value(&value, text) ||
                !weir__utf8_add_shown(j->buffer, (weir_str){ .ptr = value.ptr, .len = value.len });
    weir__buffer_free(&value);
}

void weir__report_json_field(report_json *j, const report_field *field)
{
    if ((field->flags & REPORT_TEXT_ONLY) != 0) {
        return;
    }
    switch (field->type) {
    case REPORT_STR:
    case REPORT_STATE:
        if (field->text.ptr == NULL) {
            weir__report_json_null(j, field->name);
        } else {
            weir__report_json_str(j, field->name, field->text);
        }
        break;
    case REPORT_I64:
    case REPORT_COUNT:
    case REPORT_BYTES:
    case REPORT_SPAN:
        weir__report_json_i64(j, field->name, field->number);
        break;
    case REPORT_BOOL:
        weir__report_json_bool(j, field->name, field->number != 0);
        break;
    case REPORT_TIME:
        if (field->number == 0) {
            weir__report_json_null(j, field->name);
        } else {
            weir__report_json_time(j, field->name, field->number);
        }
        break;
    case REPORT_RAW:
        member_begin(j, field->name);
        add_value(j, field->text);
        break;
    case REPORT_NULL:
        weir__report_json_null(j, field->name);
        break;
    }
}
