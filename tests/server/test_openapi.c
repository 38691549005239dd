/* SPDX-License-Identifier: Apache-2.0 */
/* The description of the API is kept in step with routes, fields and statuses. */
#include "server/api_params.h"
#include "server/openapi.h"
#include "server/routes.h"
#include "tests/server/expect.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static cJSON *document(void)
{
    Buffer text;
    Error error;
    cJSON *json;
    buffer_init(&text, 1 << 20);
    cr_assert(openapi_write(NULL, &text, &error), "%s", error.text);
    cr_assert(json_parse(text.data, text.n, &json, &error), "%s", error.text);
    buffer_done(&text);
    return json;
}

static cJSON *at(const cJSON *json, const char *path)
{
    char copy[256], *rest = NULL;
    cJSON *item = (cJSON *)json;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *name = strtok_r(copy, "|", &rest); name; name = strtok_r(NULL, "|", &rest)) {
        item = cJSON_GetObjectItemCaseSensitive(item, name);
        cr_assert(item, "no %s in %s", name, path);
    }
    return item;
}

/* Paths of the document that begin as the route's and have its method. */
static size_t count_operations(const cJSON *paths, const Route *route)
{
    size_t n = 0, n_path = strlen(route->path);
    char method[16] = "";
    for (size_t i = 0; route->method[i]; i++) method[i] = (char)(route->method[i] | 0x20);
    for (const cJSON *path = paths->child; path; path = path->next) {
        bool same = route->flags & ROUTE_PREFIX ? !strncmp(path->string, route->path, n_path) && path->string[n_path]
                                                : !strcmp(path->string, route->path);
        n += same && cJSON_GetObjectItemCaseSensitive(path, method);
    }
    return n;
}

Test(openapi, has_every_route_and_no_other)
{
    cJSON *json = document(), *paths = at(json, "paths");
    size_t n = 0, n_operations = 0;
    const Route *route;
    for (size_t i = 0; (route = routes_row(i)); i++) {
        size_t found = count_operations(paths, route);
        cr_expect(found, "%s %s is not described", route->method, route->path);
        n += found;
    }
    for (const cJSON *path = paths->child; path; path = path->next) n_operations += (size_t)cJSON_GetArraySize(path);
    cr_expect_eq(n, n_operations);
    cr_expect_str_eq(at(json, "openapi")->valuestring, "3.1.0");
    cr_expect_str_eq(at(json, "info|version")->valuestring, LW_VERSION);
    cJSON_Delete(json);
}

static void expect_fields(const cJSON *json, ApiRoute route, const char *schema)
{
    char place[128];
    ApiField field;
    snprintf(place, sizeof place, "components|schemas|%s|properties", schema);
    cJSON *properties = at(json, place);
    for (size_t i = 0; api_params_field(i, &field); i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(properties, field.name);
        if (!(field.routes & route)) continue;
        cr_expect(item != NULL, "%s of %s", field.name, schema);
        if (!item || field.type != API_FIELD_OTHER) continue;
        const cJSON *said = at(item, "anyOf")->child;
        cr_expect(said->child, "%s of %s has no schema", field.name, schema);
    }
    for (const cJSON *item = properties->child; item; item = item->next) {
        bool known = false;
        for (size_t i = 0; api_params_field(i, &field); i++)
            known |= (field.routes & route) && !strcmp(field.name, item->string);
        cr_expect(known, "%s of %s is no field", item->string, schema);
    }
}

Test(openapi, has_every_field_and_no_other)
{
    cJSON *json = document();
    expect_fields(json, API_CHAT, "ChatRequest");
    expect_fields(json, API_COMPLETION, "CompletionRequest");
    const cJSON *temperature = at(json, "components|schemas|ChatRequest|properties|temperature");
    cr_expect(at(temperature, "minimum")->valuedouble == 0 && at(temperature, "maximum")->valuedouble == 2);
    cr_expect_str_eq(at(temperature, "type")->child->valuestring, "number");
    cJSON_Delete(json);
}

/* Every $ref leads somewhere. */
static void expect_references(const cJSON *json, const cJSON *item)
{
    for (const cJSON *child = item->child; child; child = child->next) {
        expect_references(json, child);
        if (!child->string || strcmp(child->string, "$ref")) continue;
        char path[128];
        cr_assert(!strncmp(child->valuestring, "#/", 2), "%s", child->valuestring);
        snprintf(path, sizeof path, "%s", child->valuestring + 2);
        for (char *c = path; *c; c++)
            if (*c == '/') *c = '|';
        (void)at(json, path);
    }
}

Test(openapi, references_lead_somewhere)
{
    cJSON *json = document();
    expect_references(json, json);
    cJSON_Delete(json);
}

/* ---- every documented status can be got ---- */

#define HEAD " HTTP/1.1\r\nConnection: close\r\n"
#define OTHER_HOST "Host: evil.com\r\n"
#define ADMIN "Authorization: Bearer ka\r\n"
#define ALL "*"

typedef enum World { WORLD_READY, WORLD_LOADING, WORLD_FULL, WORLD_HUNG, WORLD_BROKEN, WORLD_PAGELESS, WORLDS } World;

typedef struct Way {
    const char *operations; /* "METHOD /path,..." of the document, ALL: any that has the status */
    unsigned status;
    World world;
    const char *headers;
    const char *body; /* NULL: one that is right for the operation */
    const char *id;   /* what stands for {..} of the path; NULL: one that is there */
} Way;

#define GENERATE "POST /v1/chat/completions,POST /v1/completions"
#define SESSIONS "POST /v1/sessions/{id}/save,POST /v1/sessions/{id}/restore,DELETE /v1/sessions/{id}"
#define HEALTH "GET /livez,GET /readyz,GET /health"
#define LATE                                                                                                           \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"prompt\":\"x\",\"timeout_s\":0.001,\"max_tokens\":300}"
#define OTHER "{\"model\":\"other\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"prompt\":\"x\"}"

static const Way ways[] = {
    {ALL, 200, WORLD_READY, ADMIN, NULL, NULL},
    {ALL, 400, WORLD_READY, ADMIN "Host: localhost\r\n", NULL, NULL},
    {ALL, 401, WORLD_READY, "", NULL, NULL},
    {SESSIONS, 403, WORLD_READY, "Authorization: Bearer ku\r\n", NULL, NULL},
    {GENERATE, 403, WORLD_READY, "Authorization: Bearer km\r\n", NULL, NULL},
    {ALL, 403, WORLD_READY, OTHER_HOST, NULL, NULL},
    {ALL, 413, WORLD_READY, ADMIN "Content-Length: 900000000\r\n", "", NULL},
    {ALL, 415, WORLD_READY, ADMIN "Content-Type: text/plain\r\n", NULL, NULL},
    {ALL, 429, WORLD_FULL, ADMIN, NULL, NULL},
    {ALL, 501, WORLD_READY, ADMIN "Transfer-Encoding: gzip\r\n", "", NULL},
    {HEALTH, 503, WORLD_HUNG, "", NULL, NULL},
    {ALL, 503, WORLD_LOADING, ADMIN, NULL, NULL},
    {"GET /", 304, WORLD_READY, "If-None-Match: *\r\n", NULL, NULL},
    {"GET /", 404, WORLD_PAGELESS, "", NULL, NULL},
    {GENERATE, 404, WORLD_READY, ADMIN, OTHER, NULL},
    {"GET /v1/models/{model}", 404, WORLD_READY, ADMIN, NULL, "other"},
    {SESSIONS, 404, WORLD_READY, ADMIN, NULL, "none"},
    {SESSIONS, 500, WORLD_READY, ADMIN, NULL, "broken"},
    {GENERATE, 500, WORLD_BROKEN, ADMIN, NULL, NULL},
    {GENERATE, 504, WORLD_READY, ADMIN, LATE, NULL},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

static const char *body_of(const char *path)
{
    if (!strcmp(path, "/v1/abort")) return "{\"request_id\":\"x\"}";
    if (!strcmp(path, "/tokenize")) return "{\"content\":\"x\"}";
    if (!strcmp(path, "/detokenize")) return "{\"tokens\":[5]}";
    if (strstr(path, "/save")) return "{\"prompt\":\"abc\"}";
    return "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"prompt\":\"x\",\"max_tokens\":1}";
}

/* {..} becomes the id. */
static void fill_path(const char *template, const char *id, char path[static 256])
{
    const char *open = strchr(template, '{'), *close = strchr(template, '}');
    if (!open)
        snprintf(path, 256, "%s", template);
    else
        snprintf(path, 256, "%.*s%s%s", (int)(open - template), template,
                 id                          ? id
                 : strstr(template, "model") ? "tiny"
                                             : "s",
                 close + 1);
}

static Fixture *start_world(World world)
{
    FixtureOptions options = fixture_defaults();
    char path[] = "/tmp/lw-openapi-XXXXXX";
    static const char keys[] = "u:ku\nm:km scope=monitor\na:ka scope=admin\n";
    int fd = mkstemp(path);
    cr_assert(fd >= 0 && write(fd, keys, sizeof keys - 1) == (ssize_t)(sizeof keys - 1));
    close(fd);
    options.params.access.api_key_file = path;
    options.params.access.allowed_hosts = "localhost";
    options.session_dir = "/nowhere";
    options.loading = world == WORLD_LOADING;
    options.params.stall_ms = 100;
    options.params.limits.has_page = world != WORLD_PAGELESS;
    if (world == WORLD_FULL) options.params.max_held_bytes = 1;
    Fixture *fixture = fixture_start(&options);
    unlink(path);
    return fixture;
}

static unsigned ask(Fixture *fixture, const char *operation, const Way *way)
{
    char path[256], method[16], template[128], length[64] = "", *request;
    Buffer in;
    cr_assert_eq(sscanf(operation, "%15s %127s", method, template), 2);
    fill_path(template, way->id, path);
    const char *body = strcmp(method, "POST") ? "" : way->body ? way->body : body_of(template);
    bool has_length = strcasestr(way->headers, "content-length") || strcasestr(way->headers, "transfer-encoding");
    if (!has_length) snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(body));
    const char *host = strstr(way->headers, OTHER_HOST) ? "" : "Host: localhost\r\n";
    cr_assert(asprintf(&request, "%s %s" HEAD "%s%s%s\r\n%s", method, path, host, way->headers, length, body) > 0);
    http_ask(fixture_port(fixture), request, &in);
    unsigned status = http_status(&in);
    free(request);
    buffer_done(&in);
    return status;
}

/* The way that fits best: what names the operation comes before what is for all. */
static const Way *find_way(const char *operation, unsigned status)
{
    const Way *found = NULL;
    for (size_t i = 0; i < N_WAYS; i++) {
        char list[256];
        snprintf(list, sizeof list, ",%s,", ways[i].operations);
        char wanted[192];
        snprintf(wanted, sizeof wanted, ",%s,", operation);
        if (ways[i].status != status) continue;
        if (strstr(list, wanted)) return &ways[i];
        if (!strcmp(ways[i].operations, ALL)) found = &ways[i];
    }
    return found;
}

static void hang(Fixture *fixture)
{
    fake_worker_hang(true);
    int fd = http_connect(fixture_port(fixture));
    cr_assert(http_send_post(fd, "/v1/completions", ADMIN, "{\"prompt\":\"x\"}"));
    const Way health = {"", 0, WORLD_HUNG, "", NULL, NULL};
    for (int i = 0; i < 300 && ask(fixture, "GET /livez", &health) != 503; i++) usleep(10000);
    close(fd);
}

/* 499 takes two clients. */
static void expect_abort(Fixture *fixture, const char *operation)
{
    char path[128];
    Buffer in;
    cr_assert_eq(sscanf(operation, "%*s %127s", path), 1);
    buffer_init(&in, 1 << 20);
    int fd = http_connect(fixture_port(fixture));
    cr_assert(
        http_send_post(fd, path, ADMIN "x-request-id: mine\r\n",
                       "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"prompt\":\"x\",\"max_tokens\":400}"));
    const Way abort = {"", 0, WORLD_READY, ADMIN, "{\"request_id\":\"mine\"}", NULL};
    for (int i = 0; i < 100 && http_read(fd, &in, "HTTP/1.1 499", 10) != HTTP_FOUND; i++)
        (void)ask(fixture, "POST /v1/abort", &abort);
    cr_expect_eq(http_status(&in), 499, "%s", operation);
    close(fd);
    buffer_done(&in);
}

static size_t expect_statuses(const cJSON *json, Fixture *fixture, World world)
{
    size_t n = 0;
    for (const cJSON *path = at(json, "paths")->child; path; path = path->next)
        for (const cJSON *operation = path->child; operation; operation = operation->next) {
            char name[160];
            int end = snprintf(name, sizeof name, "%s %s", operation->string, path->string);
            cr_assert(end > 0 && (size_t)end < sizeof name);
            for (char *c = name; *c != ' '; c++) *c = (char)(*c & ~0x20);
            for (const cJSON *answer = at(operation, "responses")->child; answer; answer = answer->next) {
                unsigned status = (unsigned)atoi(answer->string);
                const Way *way = find_way(name, status);
                if (status == 499 && world == WORLD_READY) expect_abort(fixture, name);
                n += status == 499 && world == WORLD_READY;
                if (status == 499) continue;
                cr_expect(way, "nobody knows how to get %u from %s", status, name);
                if (!way || way->world != world) continue;
                unsigned got = ask(fixture, name, way);
                cr_expect(got == status, "%s: wanted %u, got %u", name, status, got);
                n++;
            }
        }
    return n;
}

Test(openapi, every_documented_status_can_be_got)
{
    cJSON *json = document();
    size_t n_wanted = 0, n = 0;
    for (const cJSON *path = at(json, "paths")->child; path; path = path->next)
        for (const cJSON *operation = path->child; operation; operation = operation->next)
            n_wanted += (size_t)cJSON_GetArraySize(at(operation, "responses"));
    for (World world = WORLD_READY; world < WORLDS; world++) {
        Fixture *fixture = start_world(world);
        if (world == WORLD_HUNG) hang(fixture);
        if (world == WORLD_BROKEN) fake_worker_break(true);
        n += expect_statuses(json, fixture, world);
        fake_worker_break(false);
        fake_worker_hang(false);
        fixture_stop(fixture);
    }
    cr_expect_eq(n, n_wanted);
    cJSON_Delete(json);
}

Test(openapi, is_served_with_what_the_model_adds)
{
    FixtureOptions options = fixture_defaults();
    options.params.access.api_key = "k";
    Fixture *fixture = fixture_start(&options);
    Buffer in;
    http_ask(fixture_port(fixture), "GET /openapi.json" HEAD "Host: localhost\r\n\r\n", &in);
    cr_expect_eq(http_status(&in), 200);
    cr_expect(strstr(in.data, "\"enum\":[\"tiny\",\"alias/tiny\",\"") != NULL);
    cr_expect(strstr(in.data, "Content-Type: application/json\r\n") != NULL);
    buffer_done(&in);
    fixture_stop(fixture);
}
