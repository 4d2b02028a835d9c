#pragma once
// What tests of `mgplan check` ask about.

#include <string>

#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing {

/// Llama-3-8B's shape in Megatron-LM's flags, with a layout behind it.
inline std::string command(const std::string& layout) {
    return "torchrun pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention "
           "--num-query-groups 8 --ffn-hidden-size 14336 --swiglu --normalization RMSNorm --disable-bias-linear "
           "--untie-embeddings-and-output-weights --position-embedding-type rope --seq-length 4096 --max-position-embeddings 4096 "
           "--vocab-size 128256 --bf16 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --micro-batch-size 1 "
           "--global-batch-size 128 " +
           layout;
}

/// The JSON that `mgplan check` answers about a file of flags, without a search; expects the exit code.
inline nlohmann::ordered_json judged(const TempFile& file, const std::string& more = "--world 16", int code = kDone) {
    const Said said = say("check --top 0 --format json --megatron-args " + file.path() + " " + more);
    EXPECT_EQ(said.code, code) << said.err;
    return said.out.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json::parse(said.out);
}

}  // namespace mgplan::cli::testing
