#pragma once
// One layer of the decoder: attention, then a dense MLP or a mixture.

#include <optional>
#include <string>

#include "model/layers/context.hpp"
#include "model/layers/mlp.hpp"
#include "model/layers/moe.hpp"
#include "model/layers/self_attention.hpp"
#include "model/layers/weight_events.hpp"

namespace mgplan::model {

/// One decoder layer; its second half is a dense MLP or a mixture, by the model's list of layers. Layers behind that list,
/// those of multi-token prediction, are of the last one's kind.
class DecoderLayer {
public:
    struct Saved {
        SelfAttentionSaved attention;
        MlpSaved mlp;
        MoeSaved moe;
    };

    /// `layer`: global number from 0.
    DecoderLayer(const ModelSpec& model, const WeightTable& weights, const std::string& prefix, std::int64_t layer,
                 EnumSet<RecomputeModule> recompute);

    /// Units that a layer reports: its attention half, its MLP half.
    static constexpr int kUnits = 2;

    [[nodiscard]] Tensor forward(const RankContext& context, const MicrobatchContext& microbatch, const Tensor& x, Saved& saved,
                                 const UnitEvents& events) const;
    [[nodiscard]] Tensor backward(const RankContext& context, const MicrobatchContext& microbatch, Tensor dy, Saved& saved,
                                  const UnitEvents& events) const;

private:
    SelfAttention attention_;
    std::optional<Mlp> mlp_;
    std::optional<Moe> moe_;
};

}  // namespace mgplan::model
