/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openapi.h"
#include "server/api.h"
#include "server/api_params.h"
#include "server/routes.h"

#include <cjson/cJSON.h>
#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DOCUMENT_BYTES = 1 << 20 };

extern const char openapi_text[]; /* openapi.json */

/* The first step that finds no memory sticks. */
typedef struct Writer {
    cJSON *document;
    bool failed;
} Writer;

static cJSON *member(Writer *writer, cJSON *object, const char *name)
{
    cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (!item) item = cJSON_AddObjectToObject(object, name);
    writer->failed |= !item;
    return item;
}

/* Takes item, NULL too. */
static void put(Writer *writer, cJSON *object, const char *name, cJSON *item)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, name);
    if (item && cJSON_AddItemToObject(object, name, item)) return;
    cJSON_Delete(item);
    writer->failed = true;
}

static void put_text(Writer *writer, cJSON *object, const char *name, const char *text)
{
    put(writer, object, name, cJSON_CreateString(text));
}

static cJSON *component(Writer *writer, const char *kind, const char *name)
{
    return member(writer, member(writer, member(writer, writer->document, "components"), kind), name);
}

/* ---- errors ---- */

/* All codes of a status, as the table of errors has them. */
static void describe_status(unsigned status, char text[static 400])
{
    size_t n = 0;
    *text = '\0';
    for (int kind = 1; kind < HTTP_ERR_COUNT; kind++) {
        const HttpErrorRow *row = http_error_row(kind);
        char quoted[64];
        if (row->status != status || !row->code) continue;
        snprintf(quoted, sizeof quoted, "`%s`", row->code);
        if (strstr(text, quoted)) continue;
        n += (size_t)snprintf(text + n, 400 - n, "%s%s", n ? ", " : "", quoted);
    }
}

static void add_error(Writer *writer, cJSON *responses, unsigned status)
{
    char number[16], name[16], place[48], text[400];
    snprintf(number, sizeof number, "%u", status);
    snprintf(name, sizeof name, "E%u", status);
    snprintf(place, sizeof place, "#/components/responses/%s", name);
    if (cJSON_GetObjectItemCaseSensitive(responses, number)) return;
    put_text(writer, member(writer, responses, number), "$ref", place);
    describe_status(status, text);
    cJSON *response = component(writer, "responses", name);
    put_text(writer, response, "description", text);
    cJSON *content = member(writer, member(writer, response, "content"), "application/json");
    put_text(writer, member(writer, content, "schema"), "$ref", "#/components/schemas/Error");
}

static unsigned status_of(const char *code)
{
    for (int kind = 1; kind < HTTP_ERR_COUNT; kind++)
        if (http_error_row(kind)->code && !strcmp(http_error_row(kind)->code, code))
            return http_error_row(kind)->status;
    return http_error_row(ERR_INTERNAL)->status;
}

/* What a route's flags lead to, whatever its handler does. */
static const struct {
    unsigned flags, without; /* one of flags, 0: any; none of without */
    int kind;
} common_errors[] = {
    {0, 0, HTTP_ERR_FRAMING},
    {0, 0, HTTP_ERR_HOST},
    {0, 0, HTTP_ERR_BODY_SIZE},
    {0, 0, HTTP_ERR_TRANSFER_CODING},
    {0, ROUTE_OPEN, HTTP_ERR_KEY},
    {0, ROUTE_OPEN | ROUTE_WATCH, HTTP_ERR_FORBIDDEN},
    {ROUTE_JSON, 0, HTTP_ERR_MEDIA_TYPE},
    {ROUTE_JSON, 0, HTTP_ERR_RATE},
    {ROUTE_MODEL, 0, HTTP_ERR_LOADING},
};

static void add_errors(Writer *writer, cJSON *operation, unsigned flags)
{
    cJSON *responses = member(writer, operation, "responses"), *code;
    for (size_t i = 0; i < sizeof common_errors / sizeof *common_errors; i++) {
        bool has = !common_errors[i].flags || (flags & common_errors[i].flags);
        if (has && !(flags & common_errors[i].without))
            add_error(writer, responses, http_error_row(common_errors[i].kind)->status);
    }
    cJSON *own = cJSON_DetachItemFromObjectCaseSensitive(operation, "x-errors");
    cJSON_ArrayForEach(code, own) add_error(writer, responses, status_of(code->valuestring));
    cJSON_Delete(own);
}

/* ---- operations ---- */

static void add_security(Writer *writer, cJSON *operation, unsigned flags)
{
    cJSON *security = cJSON_CreateArray();
    put(writer, operation, "security", security);
    cJSON *need = writer->failed || (flags & ROUTE_OPEN) ? NULL : cJSON_CreateObject();
    if (!need || !cJSON_AddItemToArray(security, need) || !cJSON_AddArrayToObject(need, "key"))
        writer->failed |= !(flags & ROUTE_OPEN);
}

static void complete_operation(Writer *writer, const char *path, cJSON *operation)
{
    char method[16];
    size_t n = 0;
    for (; operation->string[n] && n + 1 < sizeof method; n++) method[n] = (char)toupper(operation->string[n]);
    method[n] = '\0';
    const Route *route = routes_find(method, path);
    if (!route) return; /* a test sees to it that there is one */
    add_errors(writer, operation, route->flags);
    add_security(writer, operation, route->flags);
}

static void complete_operations(Writer *writer)
{
    cJSON *paths = member(writer, writer->document, "paths"), *path, *operation;
    cJSON_ArrayForEach(path, paths) cJSON_ArrayForEach(operation, path)
        complete_operation(writer, path->string, operation);
}

/* ---- fields ---- */

static cJSON *or_null(Writer *writer, const char *type)
{
    const char *const names[] = {type, "null"};
    cJSON *types = cJSON_CreateStringArray(names, 2);
    writer->failed |= !types;
    return types;
}

static void put_range(Writer *writer, cJSON *schema, const ApiField *field)
{
    put(writer, schema, "minimum", cJSON_CreateNumber(field->min));
    put(writer, schema, "maximum", cJSON_CreateNumber(field->max));
}

/* What is said of the field by hand, or null. */
static void allow_null(Writer *writer, cJSON *properties, const char *name)
{
    cJSON *said = cJSON_DetachItemFromObjectCaseSensitive(properties, name), *any, *none;
    if (!said) said = cJSON_CreateObject();
    any = cJSON_AddArrayToObject(member(writer, properties, name), "anyOf");
    if (!said || !any || !cJSON_AddItemToArray(any, said)) {
        cJSON_Delete(said);
        writer->failed = true;
        return;
    }
    none = cJSON_CreateObject();
    if (none && cJSON_AddItemToArray(any, none))
        put_text(writer, none, "type", "null");
    else
        writer->failed = true;
}

static void add_field(Writer *writer, cJSON *properties, const ApiField *field)
{
    if (field->type == API_FIELD_OTHER) {
        allow_null(writer, properties, field->name);
        return;
    }
    cJSON *schema = member(writer, properties, field->name);
    switch (field->type) {
    case API_FIELD_BOOL:
        put(writer, schema, "type", or_null(writer, "boolean"));
        break;
    case API_FIELD_NUMBER:
        put(writer, schema, "type", or_null(writer, "number"));
        put_range(writer, schema, field);
        break;
    case API_FIELD_INTEGER:
        put(writer, schema, "type", or_null(writer, "integer"));
        put_range(writer, schema, field);
        break;
    case API_FIELD_UNSUPPORTED:
        put_text(writer, schema, "description", "Refused as `unsupported`, unless the value asks for nothing.");
        put_text(writer, schema, "type", "null");
        break;
    case API_FIELD_OTHER:
        break;
    }
}

static void add_fields(Writer *writer, ApiRoute route, const char *schema)
{
    ApiField field;
    cJSON *properties = member(writer, component(writer, "schemas", schema), "properties");
    for (size_t i = 0; api_params_field(i, &field); i++)
        if (field.routes & route) add_field(writer, properties, &field);
}

/* ---- the model ---- */

static void tell_model(Writer *writer, const ServedModel *model)
{
    put(writer, component(writer, "schemas", "ModelName"), "enum",
        cJSON_CreateStringArray(model->names, (int)model->n_names));
    put(writer, component(writer, "schemas", "TokenId"), "maximum",
        cJSON_CreateNumber((double)tok_n_vocab(model->tokenizer) - 1));
}

bool openapi_write(const ServedModel *model, Buffer *out, Error *error)
{
    Writer writer = {.document = cJSON_Parse(openapi_text)};
    if (!writer.document) return error_set(error, ERR_NO_MEMORY, "no memory for the description of the API");
    put_text(&writer, member(&writer, writer.document, "info"), "version", LW_VERSION);
    complete_operations(&writer);
    add_fields(&writer, API_CHAT, "ChatRequest");
    add_fields(&writer, API_COMPLETION, "CompletionRequest");
    if (model) tell_model(&writer, model);
    char *text = writer.failed ? NULL : cJSON_PrintUnformatted(writer.document);
    cJSON_Delete(writer.document);
    bool ok = text ? buffer_append_text(out, text, error)
                   : error_set(error, ERR_NO_MEMORY, "no memory for the description of the API");
    cJSON_free(text);
    return ok;
}

void api_openapi(Server *server, Exchange *exchange, const char *tail)
{
    (void)tail;
    Buffer body;
    Error error;
    buffer_init(&body, MAX_DOCUMENT_BYTES);
    if (openapi_write(server->model, &body, &error))
        server_reply_json(exchange, &body);
    else
        server_reply_error(exchange, (int)error.code, &error);
    buffer_done(&body);
}
