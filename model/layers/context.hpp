#pragma once
// The rank and the microbatch that a layer runs on.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/device/device.hpp"
#include "model/ops/positions.hpp"
#include "plan/layers/layer.hpp"
#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/offload.hpp"

namespace mgplan::model {

/// Kinds of ops that write a main gradient. One that only products write need not begin at zero: the first product of a step overwrites
/// it, which saves writing zeros and reading them.
struct GradientStart {
    bool products = false;  ///< a linear layer's
    bool sums = false;      ///< an embedding's
    bool empty = false;     ///< undefined until the next product
};

struct Fp8Weight;

/// One parameter as layers use it: its values, and the main gradient that backwards add to.
struct Weight {
    Tensor value;
    Tensor gradient;                         ///< undefined: the weight is frozen
    std::shared_ptr<GradientStart> start{};  ///< shared by all users of the weight; without one the gradient begins at zero
    std::shared_ptr<Fp8Weight> fp8{};  ///< of linear layers that multiply in fp8 (model/layers/fp8_weight.hpp); null: in the weight's type
    [[nodiscard]] bool defined() const { return value.defined(); }
    /// False: frozen. Backwards neither add to its gradient nor read what that alone would need.
    [[nodiscard]] bool trained() const { return gradient.defined(); }
};

/// The main gradient of a weight; of a frozen one room for the sums that a fused backward writes whether they are read or not.
[[nodiscard]] Tensor gradient_or_room(const Weight& weight);

/// Weights of one model chunk by their Megatron-core names (plan/parameters/parameters.hpp), bound to the buffers they live in.
class WeightTable {
public:
    void add(const std::string& name, Weight weight);
    /// A weight that must exist (assertion).
    [[nodiscard]] const Weight& at(const std::string& name) const;
    /// A weight that the model may not have: undefined then.
    [[nodiscard]] Weight find(const std::string& name) const;

    /// One weight of each expert, by the name without the expert's number; on shapes one stands for all.
    struct OfExperts {
        Weight weight;
        std::size_t experts = 0;
    };
    void add_of_experts(const std::string& name, std::size_t experts, Weight weight);
    /// Undefined, of no experts, where each has its own.
    [[nodiscard]] OfExperts find_of_experts(const std::string& name) const;

private:
    std::map<std::string, Weight, std::less<>> weights_;
    std::map<std::string, OfExperts, std::less<>> of_experts_;
};

/// Arguments that a decoder layer and its halves are built from, besides the struct of the half's kind.
struct LayerSite {
    Layer layer;
    std::int64_t hidden = 0;
    std::int64_t max_positions = 0;  ///< of the model, for rotary scaling
    std::int64_t layers = 0;         ///< decoder layers of the model
    const WeightTable& weights;
    std::string prefix;       ///< "decoder.layers.0."
    std::int64_t number = 0;  ///< of the layer in the model, from 0: for dropout and fixed decays
    EnumSet<RecomputeModule> recompute;
};

/// Site of a layer of a model; numbers from the model's number of layers on are those of multi-token prediction.
[[nodiscard]] LayerSite layer_site(const ModelSpec& model, Layer layer, const WeightTable& weights, std::string prefix, std::int64_t number,
                                   EnumSet<RecomputeModule> recompute);

class RoutingLog;
class ExpertBiases;
class LayerGraphs;
class DeferredGradients;

/// The rank's device, groups and choices. All pointers outlive the layers; groups of one rank are communicators of size 1.
struct RankContext {
    Device* device = nullptr;
    Communicator* tp = nullptr;
    Communicator* cp = nullptr;
    Communicator* ep = nullptr;
    Communicator* etp = nullptr;
    Communicator* tp_cp = nullptr;  ///< every rank that holds rows of the same microbatch; of MoE models
    bool sequence_parallel = false;
    CpCommType cp_comm_type = CpCommType::p2p;
    Dtype dtype = Dtype::fp32;
    double norm_epsilon = 1e-5;
    /// A norm's backward adds the gradient of the path around its half in the same pass; else a later op does, as autograd would.
    bool adds_path_in_norms = true;
    /// The core reads queries, keys and values in place in the packed projection, and writes their gradients there, if nothing else
    /// needs them separately (SelfAttention::stays_packed); else they are copied out of it and back.
    bool attends_packed = true;
    /// Products add biases and sum up their gradients where the device's library does (model/ops/linear.hpp); else passes of their own do.
    bool biases_in_products = true;
    /// With sequence parallelism an adapter of a weight with divided rows keeps its gathered input; else its backward gathers that again.
    bool keeps_gathered_rows = false;
    EnumSet<OffloadModule> offloaded{};  ///< modules whose inputs wait on the host between forward and backward
    /// MoE layers choose experts in turn, whatever the router says.
    bool balanced_routing = false;
    /// Log in which a device that computes records its routing, and from which the meta device reads it; without one the meta
    /// device takes balanced counts. May be null.
    RoutingLog* routing_log = nullptr;
    ExpertBiases* expert_biases = nullptr;  ///< of models with them; null: none
    /// One fp64 value to which the auxiliary losses of this rank's rows are added, without their coefficient. May be undefined.
    Tensor auxiliary_loss{};
    /// (1 + depths of multi-token prediction) fp64, to which the sums of this rank's rows' losses are added: the model's first, then each
    /// depth's. May be undefined.
    Tensor losses{};
    LayerGraphs* graphs = nullptr;          ///< captured graphs of the decoder's layers; null: none
    DeferredGradients* deferred = nullptr;  ///< collects the weight gradients of the running backward; null: it computes them
};

/// One microbatch on one rank.
struct MicrobatchContext {
    std::int64_t batch = 1;           ///< sequences
    std::int64_t sequence = 0;        ///< tokens of a whole sequence
    std::int64_t first_sequence = 0;  ///< global number of its first sequence in this step, for dropout
    std::uint64_t dropout_seed = 0;   ///< seed mixed with the step
    std::int64_t step = 0;            ///< of the trainer, from 1
    std::int64_t index = 0;           ///< of this microbatch among the step's on this rank
    std::int64_t slot = 0;            ///< with CUDA graphs: number of the addresses that this pass of its chunk works at
    double d_auxiliary = 0;           ///< gradient of each MoE layer's auxiliary loss: cp / microbatches (Megatron-LM schedules.py)
    /// Multi-token prediction: for each depth the token that each row predicts, (rows) int32, negative after the sequence's end.
    std::vector<Tensor> mtp_targets{};
    /// position_ids() of the rows (learned positions), written before the graph of an iteration; undefined: the pass writes its own.
    Tensor position_ids{};
    /// (4) int32: read by dropout in place of seed and first sequence (model/ops/dropout.hpp); undefined: it reads those.
    Tensor changing{};
};

/// Returns the places of the sequence that this rank's rows hold, inside the tp region.
[[nodiscard]] Positions positions_of(const RankContext& context, const MicrobatchContext& microbatch);

}  // namespace mgplan::model
