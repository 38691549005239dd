/* SPDX-License-Identifier: Apache-2.0 */
/* What happens before the first request: configuration, model file, engine, template, server. */
#include "config/config.h"
#include "engine/select/roles.h"
#include "server/server.h"
#include "tests/robustness/paths.h"

#include <stdio.h>
#include <string.h>

static bool run_config(World *world, Buffer *digest, Error *error)
{
    char *argv[] = {"--config", world->config_path, "--alias", "a,b"};
    Config config = {.port = 4711};
    bool help = true;
    if (!config_load(CMD_SERVE, 4, argv, &config, &help, error)) {
        if (config.port != 4711 || !help) world->broken = "config_load touched its outputs";
        return false;
    }
    digest_add(digest, config.model, strlen(config.model));
    digest_count(digest, config.port);
    digest_count(digest, config.max_body);
    config_done(&config);
    return true;
}

static bool run_gguf(World *world, Buffer *digest, Error *error)
{
    Gguf *gguf = UNTOUCHED;
    if (!gguf_open(world->model_path, &gguf, error)) {
        if (gguf != UNTOUCHED) world->broken = "gguf_open touched its output";
        return false;
    }
    digest_count(digest, gguf_n_tensors(gguf));
    gguf_close(gguf);
    return true;
}

static bool run_split(World *world, Buffer *digest, Error *error)
{
    Gguf *gguf = UNTOUCHED;
    if (!gguf_open(world->split_paths[0], &gguf, error)) {
        if (gguf != UNTOUCHED) world->broken = "gguf_open touched its output";
        return false;
    }
    digest_count(digest, gguf_n_tensors(gguf));
    gguf_close(gguf);
    return true;
}

static bool run_spm(World *world, Buffer *digest, Error *error)
{
    static const char text[] = "the \xE6\x97\xA5 and  a\n";
    Gguf *gguf;
    Tokenizer *tokenizer = UNTOUCHED;
    TokenList list = {0};
    if (!gguf_open(world->spm_path, &gguf, error)) return false;
    bool ok = tok_new(gguf, &tokenizer, error);
    if (!ok && tokenizer != UNTOUCHED) world->broken = "tok_new touched its output";
    if (ok) {
        const TokEncode encode = {.text = text, .n = sizeof text - 1, .add_special = true};
        ok = tok_encode(tokenizer, &encode, &list, error);
        for (size_t i = 0; ok && i < list.n; i++) digest_count(digest, list.ids[i]);
        token_list_done(&list);
        tok_free(tokenizer);
    }
    gguf_close(gguf);
    return ok;
}

static bool run_roles(World *world, Buffer *digest, Error *error)
{
    char list[176];
    Arena arena;
    const AttnPolicy *policies = UNTOUCHED;
    uint32_t n = 0;
    const ModelShape *shape = engine_shape(world->engine);
    const RolesModel model = {.fingerprint = engine_model_fingerprint(world->engine), .shape = shape};
    snprintf(list, sizeof list, "half=%s", world->roles_path);
    arena_init(&arena, 4096, 1 << 20);
    bool ok = roles_load(list, &model, &arena, &policies, &n, error);
    if (!ok && policies != UNTOUCHED) world->broken = "roles_load touched its output";
    if (ok) digest_count(digest, n);
    arena_done(&arena);
    return ok;
}

static bool run_engine(World *world, Buffer *digest, Error *error)
{
    const EngineParams params = {.model_path = world->model_path,
                                 .max_sequences = 2,
                                 .max_batch_rows = 16,
                                 .max_logit_rows = 4,
                                 .n_threads = 2,
                                 .kv_types = {{KV_F16, KV_F16, KV_F16}},
                                 .world = 1};
    Engine *engine = UNTOUCHED;
    if (!engine_open(&params, &engine, error)) {
        if (engine != UNTOUCHED) world->broken = "engine_open touched its output";
        return false;
    }
    digest_count(digest, engine_context(engine));
    digest_count(digest, engine_chat_template(engine) != NULL);
    digest_count(digest, tok_n_vocab(engine_tokenizer(engine)));
    engine_close(engine);
    return true;
}

/* Takes lists of parts alone, and writes calls as JSON: loading it must find both out. */
static const char picky[] =
    "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.arguments|tojson }}"
    "{% endfor %}{% else %}{% for p in m.content %}<{{ p['text'] }}>{% endfor %}{% endif %}{% endfor %}";

static bool run_template(World *world, Buffer *digest, Error *error)
{
    ChatTemplate *t = UNTOUCHED;
    if (!chat_template_new(picky, strlen(picky), "<s>", "</s>", &t, error)) {
        if (t != UNTOUCHED) world->broken = "chat_template_new touched its output";
        return false;
    }
    ChatPrompt prompt;
    cJSON *messages = cJSON_Parse("[{\"role\":\"user\",\"content\":\"hi\"}]");
    bool ok = messages ? chat_template_render(t, &(ChatInput){.messages = messages}, 1 << 16, &prompt, error)
                       : error_set(error, ERR_NO_MEMORY, "no memory for the test's own messages");
    if (ok) {
        digest_add(digest, prompt.text.data, prompt.text.n);
        chat_prompt_done(&prompt);
    }
    cJSON_Delete(messages);
    chat_template_free(t);
    return ok;
}

static bool run_server(World *world, Buffer *digest, Error *error)
{
    uv_loop_t loop;
    ServerParams params;
    Server *server = UNTOUCHED;
    if (uv_loop_init(&loop) != 0) return error_set(error, ERR_NO_MEMORY, "no memory for a loop");
    server_defaults(&params);
    params.loop = &loop;
    params.host = "127.0.0.1";
    params.port = 0;
    params.access.api_key = "secret";
    bool ok = server_start(&params, &server, error);
    if (!ok && server != UNTOUCHED) world->broken = "server_start touched its output";
    if (ok) {
        digest_count(digest, server_port(server) != 0);
        server_free(server);
    }
    uv_run(&loop, UV_RUN_NOWAIT);
    if (uv_loop_close(&loop) != 0) world->broken = "handles are left in the loop";
    return ok;
}

const Path load_paths[] = {
    {"config_load", run_config},
    {"gguf_open", run_gguf},
    {"gguf_open_split", run_split},
    {"tok_spm", run_spm},
    {"roles_load", run_roles},
    {"engine_open", run_engine},
    {"chat_template_new", run_template},
    {"server_start", run_server},
    {0},
};
