#pragma once
// Megatron-LM's flags, as tests write them: read, or refused in so many words.

#include <string>

#include "formats/megatron/megatron_arguments.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::tests::megatron {

/// Enough of a model for all other flags.
inline const std::string kSmall = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --vocab-size 1000 --seq-length 64 ";

[[nodiscard]] inline formats::Job read(const std::string& flags) {
    return formats::read_megatron_text(flags, "flags");
}

/// Why the flags are refused; "accepted" where they are not.
[[nodiscard]] inline std::string refusal(const std::string& flags) {
    try {
        (void)read(flags);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

}  // namespace mgplan::tests::megatron
