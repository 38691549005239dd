/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cmd/cmd.h"

#include "engine/kv/kv_class.h"

bool cmd_load_config(CommandId command, int argc, char **argv, Config *ret_config, bool *ret_help, Error *error)
{
    KvTypes types;
    Config config;
    bool help = false;
    if (!config_load(command, argc, argv, &config, &help, error)) return false;
    if (!help && !kv_types_parse(config.kv_type, &types, error)) {
        config_done(&config);
        return error_prefix(error, "--kv-type");
    }
    *ret_config = config;
    *ret_help = help;
    return true;
}
