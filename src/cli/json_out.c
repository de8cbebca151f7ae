/* json_out.c - JSON, member by member, into a buffer. Names of members are ours and need no
 * escaping; everything else goes through base/json. */
#include "base/json.h"
#include "cli/cli.h"

static void add(cli_json *j, const char *ptr, size_t len)
{
    j->failed = j->failed || !weir__buffer_add(j->buffer, ptr, len);
}

static void begin(cli_json *j, const char *name)
{
    if (j->comma) {
        add(j, ",", 1);
    }
    if (name != NULL) {
        add(j, "\"", 1);
        add(j, name, strlen(name));
        add(j, "\":", 2);
    }
    j->comma = true;
}

void weir__cli_json_open(cli_json *j, const char *name, char bracket)
{
    begin(j, name);
    add(j, &bracket, 1);
    j->comma = false;
}

void weir__cli_json_close(cli_json *j, char bracket)
{
    add(j, &bracket, 1);
    j->comma = true;
}

void weir__cli_json_str(cli_json *j, const char *name, weir_str text)
{
    begin(j, name);
    j->failed = j->failed || !weir__json_write_string(j->buffer, text);
}

void weir__cli_json_i64(cli_json *j, const char *name, int64_t number)
{
    begin(j, name);
    j->failed = j->failed || !weir__buffer_add_i64(j->buffer, number);
}

void weir__cli_json_bool(cli_json *j, const char *name, bool value)
{
    begin(j, name);
    add(j, value ? "true" : "false", value ? 4 : 5);
}

void weir__cli_json_time(cli_json *j, const char *name, int64_t time_us)
{
    char text[WEIR_TIME_TEXT_BYTES];

    weir__time_to_text(time_us, text);
    begin(j, name);
    add(j, "\"", 1);
    add(j, text, strlen(text));
    add(j, "\"", 1);
}

void weir__cli_json_null(cli_json *j, const char *name)
{
    begin(j, name);
    add(j, "null", 4);
}

void weir__cli_json_field(cli_json *j, const cli_field *field)
{
    switch (field->type) {
    case CLI_STR:
        if (field->text.ptr == NULL) {
            weir__cli_json_null(j, field->name);
        } else {
            weir__cli_json_str(j, field->name, field->text);
        }
        break;
    case CLI_I64:
        weir__cli_json_i64(j, field->name, field->number);
        break;
    case CLI_BOOL:
        weir__cli_json_bool(j, field->name, field->number != 0);
        break;
    case CLI_STAMP:
        if (field->number == 0) {
            weir__cli_json_null(j, field->name);
        } else {
            weir__cli_json_time(j, field->name, field->number);
        }
        break;
    case CLI_RAW:
        begin(j, field->name);
        add(j, field->text.ptr, field->text.len);
        break;
    case CLI_NULL:
        weir__cli_json_null(j, field->name);
        break;
    }
}
