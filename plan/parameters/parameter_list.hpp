#pragma once
// How the parameters of layers are listed: for plan/parameters/parameters.cpp and the kinds of layers that it lists.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/parameters/parameters.hpp"

namespace mgplan {

/// Collects the tensors of one module tree.
class ParameterList {
public:
    ParameterList(std::vector<Parameter>& list, std::string prefix) : list_(list), prefix_(std::move(prefix)) {}

    /// A module of these tensors: "mixer.".
    [[nodiscard]] ParameterList within(std::string_view module) const { return {list_, prefix_ + std::string(module)}; }

    /// A parameter divided over tp along one dimension, in `stride` blocks.
    Parameter& add_sharded(std::string_view name, std::vector<std::int64_t> shape, int shard_axis, int stride = 1);

    /// A parameter whose rows are divided over tp in blocks of unequal size: `rows` of the rank in each; `rest`: its other dimensions.
    Parameter& add_in_blocks(std::string_view name, std::vector<std::int64_t> rows, std::vector<std::int64_t> rest);

    /// A parameter that every tp rank holds whole.
    Parameter& add(std::string_view name, std::vector<std::int64_t> shape, PartialGradient partial);

    /// A norm of the residual stream or of a latent, outside the tp region: `scale` and, for LayerNorm, `shift`.
    void add_norm(const ModelSpec& model, std::string_view scale, std::string_view shift, std::int64_t width,
                  PartialGradient partial = PartialGradient::sequence_parallel);

    /// A norm whose width is divided over tp.
    void add_sharded_norm(const ModelSpec& model, std::string_view scale, std::string_view shift, std::int64_t width);

private:
    std::vector<Parameter>& list_;
    std::string prefix_;
};

[[nodiscard]] bool norms_have_bias(const ModelSpec& model);

/// Rows of the packed projection of q, k, v (and the output's gate) that a rank holds.
[[nodiscard]] std::int64_t packed_rows(const ModelSpec& model, std::int64_t tp);

// The halves of a layer as the fields of ModelSpec describe them, with the norms in front of them.

void add_attention(ParameterList& list, const ModelSpec& model, std::int64_t tp);
void add_dense_mlp(ParameterList& list, const ModelSpec& model, std::int64_t tp);
void add_mixture(ParameterList& list, const ModelSpec& model, std::int64_t tp, std::int64_t ep, std::int64_t etp);

/// What mixes residual streams around one half: "self_attention_hyper_connection". Whole on every tp rank.
void add_stream_maps(ParameterList& list, const HyperConnections& streams, std::int64_t hidden, std::string_view module);

/// A whole layer of them.
void add_layer(std::vector<Parameter>& parameters, const ModelSpec& model, LayerKind kind, std::int64_t tp, std::int64_t ep,
               std::int64_t etp, const std::string& prefix);

}  // namespace mgplan
