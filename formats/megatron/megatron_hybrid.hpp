#pragma once
// Models of Megatron-LM whose layers differ in their mixer: hybrids of Mamba-2 by a pattern of letters, gated delta nets between layers of
// attention (core/models/hybrid/hybrid_layer_allocation.py; core/models/gpt/experimental_attention_variant_module_specs.py; rules of
// arguments.py at d98e8a64).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "formats/megatron/flag_reader.hpp"

namespace mgplan::formats {

/// A pattern of layers as it is given: a letter for each decoder layer.
struct HybridPattern {
    std::string flag;                    ///< that gives it
    std::string layers;                  ///< M Mamba-2, G gated delta net, * attention, - MLP, E experts
    std::vector<std::int64_t> segments;  ///< layers between two |; one segment without
    std::int64_t depths = 0;             ///< number of depths of multi-token prediction: patterns after /
    std::string prediction;              ///< layers of the first depth
    bool depths_differ = false;
    [[nodiscard]] bool holds(char letter) const { return letter != 0 && (layers + prediction).find(letter) != std::string::npos; }
};

/// --hybrid-layer-pattern or --hybrid-override-pattern; with --is-hybrid-model alone the pattern of --hybrid-attention-ratio and
/// --hybrid-mlp-ratio over --num-layers. Nothing for other models. Reports no problem: check_hybrid() does.
[[nodiscard]] std::optional<HybridPattern> hybrid_pattern(FlagReader& flags);

/// True if --experimental-attention-variant (or --linear-attention-type, its name before) selects gated delta nets.
[[nodiscard]] bool has_delta_nets(FlagReader& flags);

/// Checks the rules of a pattern and of the flags given with it; reports the parts that are not computed. Runs before the model's other
/// flags.
void check_hybrid(FlagReader& flags, const HybridPattern& pattern);
/// --spec names a Python function that makes the layers: those of HybridModel itself change nothing, others are not computed.
void read_spec(FlagReader& flags, bool hybrid);
/// Describes the layers of a model, whose fields have been read, by kinds if it has a pattern or delta nets.
void compose_hybrid(FlagReader& flags, ModelSpec& model, const std::optional<HybridPattern>& pattern);

/// The stages of a pattern with | as --pipeline-model-parallel-layout writes them; nothing without.
[[nodiscard]] std::optional<std::string> stages_of_pattern(const HybridPattern& pattern);

}  // namespace mgplan::formats
