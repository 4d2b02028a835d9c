#pragma once
// Clips gradients and updates parameters with AdamW, SGD, Lion or Muon, with the state either sharded over data-parallel ranks
// (ZeRO-1, as Megatron-LM's distributed optimizer) or whole on each.
//
// Bytes per parameter, parameters and gradients included, without and with sharding over d ranks: 18 and 6 + 12/d for
// 16-bit parameters with fp32 gradients; 20 and 4 + 16/d for 16-bit gradients, which are copied to fp32 for the update
// alone (Megatron-LM core/optimizer/optimizer.py _copy_model_grads_to_main_grads); 16 and 8 + 8/d in fp32, whose
// parameters are their own main copy. Padding of the buffers counts like parameters. Muon keeps one moment of a matrix, in fp32
// (fp64), where Adam keeps two; SGD and Lion keep one of everything.
//
// A share of main parameters and moments may be on the host (--offload optimizer). Slice by slice it is copied to the device, updated
// there and copied back: 24 bytes move for each such element and step with Adam and fp32 state, and losses do not change.

#include <array>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/ops/adam.hpp"
#include "model/ops/momentum.hpp"
#include "model/optimizer/chunk_buffers.hpp"
#include "model/optimizer/muon.hpp"
#include "model/optimizer/shard_ranges.hpp"
#include "plan/training/megatron_switches.hpp"
#include "plan/training/offload.hpp"

namespace mgplan::model {

struct OptimizerOptions {
    OptimizerKind kind = OptimizerKind::adam;
    AdamHyperparameters adam;  ///< learning rate and step are given for each step, here and below
    MomentumHyperparameters sgd{.rule = MomentumRule::sgd, .beta1 = 0.9}, lion{.rule = MomentumRule::lion, .beta1 = 0.9, .beta2 = 0.99};
    MuonOptions muon;        ///< for matrices, where the buffers hold these apart
    double clip_norm = 1.0;  ///< 0: no clipping
    bool distributed = true;
    Dtype main_dtype = Dtype::fp32;        ///< of main parameters; fp64 for fp64 training
    Dtype exp_avg_dtype = Dtype::fp32;     ///< of first moments: main_dtype or bf16
    Dtype exp_avg_sq_dtype = Dtype::fp32;  ///< of second moments
    /// Share of the state that is on the host between steps; a slice of at most `staged_elements` is on the device while it is updated.
    double on_host = 0;
    std::int64_t staged_elements = kStagedElements;
};

/// Groups the optimizer communicates with. Groups of one rank are communicators of size 1.
struct OptimizerGroups {
    Communicator* dp_cp = nullptr;      ///< dense gradients; with replicas those of one
    Communicator* expert_dp = nullptr;  ///< expert gradients; the same
    Communicator* model = nullptr;      ///< tp-pp: together with dp_cp every rank that holds a different part of the model
    Communicator* tp = nullptr;
    Communicator* embedding = nullptr;  ///< first and last stage; nullptr where they hold no table together
    /// expert:tp-ep-pp: together with expert_dp every rank that holds other experts; nullptr for models without.
    Communicator* expert_model = nullptr;
    Communicator* etp = nullptr;  ///< of MoE models
    /// With several replicas of the shards (HSDP) dp·cp of all of them; nullptr: there is one.
    Communicator* all_replicas = nullptr;
    std::int64_t replicas = 1;
};

struct StepResult {
    bool updated = true;   ///< false: a gradient was NaN or infinite and nothing was changed
    double grad_norm = 0;  ///< global, before clipping
    std::string problem;   ///< why nothing was changed, naming the parameter on the ranks that own it; empty otherwise
    bool saw_it = false;   ///< this rank's own tokens or gradients are not finite
};

/// Owns the optimizer state of all chunks of one rank.
class Optimizer {
public:
    /// The chunks outlive the optimizer. Main parameters start as copies of the parameters: construct it after they are set. Those of
    /// parameters that are stored in fp8 start with zeros.
    Optimizer(Device& device, std::vector<ChunkBuffers*> chunks, const OptimizerGroups& groups, const OptimizerOptions& options,
              bool sequence_parallel);

    /// Adds up gradients over tp for parameters whose gradient each tp rank holds a part of (with sequence parallelism those
    /// outside the tp region, and always norms on heads), and of the tied embedding between its two stages. Called after the
    /// data-parallel reductions, in Megatron-LM's order (core/distributed/finalize_model_grads.py): gradients outside a
    /// rank's shard are added up too and never used.
    void reduce_replicated_gradients();
    /// Multiplies all gradients (per-token loss: 1 / number of tokens of the global batch).
    void scale_gradients(double factor);
    /// Issues norm, clipping and the update of this rank's own state; the new parameters are still to be gathered. The device decides: if
    /// a gradient or `loss` (1) is not finite, nothing changes. `outcome` (2), fp64 as the loss, gets the sum of all squared gradients and
    /// the factor that clips them. Only Muon waits for the device. `assume_finite`: the decision of a device without values.
    void step(double learning_rate, std::int64_t step_number, const Tensor& loss, const Tensor& outcome, bool assume_finite = true);
    /// Returns the sums of the last step's squared gradients (fp64, one for each piece in the norm). To be called once per step.
    [[nodiscard]] Tensor take_squares() { return std::exchange(sums_, Tensor()); }
    /// Returns the result of a step from the values of its `outcome` and of take_squares().
    [[nodiscard]] StepResult result(const std::array<double, 2>& outcome, std::span<const double> squares) const;

    /// One parameter's state that this rank owns; the tensors are views of it, flat and equally long.
    struct Owned {
        const Parameter* description;
        std::int64_t in_parameter;         ///< first element in the rank's flattened shard
        Tensor main, exp_avg, exp_avg_sq;  ///< of a single moment exp_avg is it, and there is no exp_avg_sq
        Tensor rounded;  ///< of a parameter that is stored in fp8, after step() and take_over(), until gradients begin again
    };
    /// All of it without padding. Values written there become the state once take_over() is called.
    [[nodiscard]] std::vector<Owned> owned() const;
    /// Rounds main parameters that were written from outside to the parameters; other ranks' shards are still to be gathered.
    void take_over();

private:
    /// One parameter's piece of the state that this rank owns.
    struct Piece {
        Tensor main, exp_avg, exp_avg_sq;  ///< views of the flat state
        Tensor gradient, parameter;        ///< views of the chunk's buffers
        bool rounds_aside = false;         ///< the parameter is in fp8; the values it is cast from overwrite the used gradient
        std::size_t state = 0;             ///< index of its flat state
        std::size_t slice = 0;             ///< and of the slice of it
        std::int64_t in_state = 0;         ///< first element there
        std::int64_t in_parameter = 0;     ///< and in the rank's flattened shard of the parameter
        const Parameter* description = nullptr;
        bool decays = true;
        bool counts = true;    ///< true if this rank's copy counts in the norm
        bool divided = false;  ///< the rank has no other part of the gradient
    };
    /// Elements [begin, end) of a flat state; all that stays on the device is one slice.
    struct Slice {
        std::int64_t begin = 0, end = 0;
        bool waits = false;  ///< on the host, between steps
        Tensor main{}, exp_avg{}, exp_avg_sq{};
    };
    struct FlatState {
        std::vector<Slice> slices;
        std::size_t open = 0;  ///< the slice that pieces are made of, while they are
        std::int64_t elements = 0;
        bool copies = false;  ///< main parameters are no parameters themselves
        bool one_moment = false;
        bool matrices = false;          ///< Muon's
        bool widens_gradients = false;  ///< gradients are narrower than the state: copied for each update
    };

    /// Divides a state, without memory yet.
    [[nodiscard]] std::vector<Slice> cut(std::int64_t elements) const;
    void allocate(const FlatState& state, Slice& slice) const;
    /// Makes the slices up to `next`, each after the one before it was moved to the host.
    void advance(FlatState& state, std::size_t next) const;
    static void move(const Slice& slice, void (Storage::*where)());
    void own_bucket(FlatBuffer& buffer, const ChunkBuffers& chunk, std::size_t bucket, std::int64_t state_begin, FlatState& state);
    /// Visits the pieces of each slice; a slice that is kept on the host is on the device meanwhile.
    template <class Visit>
    void visit_slices(Visit visit) const;
    [[nodiscard]] Communicator& shards_of(const FlatBuffer& buffer) const;
    [[nodiscard]] bool adds_experts_apart() const;
    /// Fills in the outcome of a step.
    void clip(const Tensor& loss, const Tensor& outcome);
    /// Copies narrow gradients to tensors of the state's type; undefined if the buffer's own are used.
    [[nodiscard]] std::vector<Tensor> main_gradients() const;
    /// The gradients of a step, and their factor.
    struct Gradients {
        std::vector<Tensor> wide;  ///< main_gradients()
        Tensor factor;             ///< on the device
        double muon_factor = 1;    ///< the same, on the host; NaN: nothing changes
    };
    /// Updates the pieces of a slice.
    void update(std::span<const Piece> pieces, const Gradients& gradients, const AdamHyperparameters& hyper) const;

    Device& device_;
    std::vector<ChunkBuffers*> chunks_;
    OptimizerGroups groups_;
    OptimizerOptions options_;
    bool sequence_parallel_;
    std::vector<FlatState> states_;
    std::vector<Piece> pieces_;
    std::vector<std::size_t> counted_;  ///< pieces in the norm; where those of experts are added up apart, they come last
    std::int64_t dense_ = 0;            ///< of these, in front of them
    std::int64_t most_counted_ = 0;  ///< most of these on any rank of the stage: sums take the same bytes on all, a GPU's scratch does not
    Tensor sums_;                    ///< of the last step's squares, by counted_, until take_squares()
};

/// Returns true if each tp rank holds the same values of this parameter.
[[nodiscard]] bool replicated_over_tp(const Parameter& parameter);

/// Returns true if the gradient of this parameter must be summed over tp (Parameter::partial_gradient).
[[nodiscard]] bool partial_gradient_over_tp(const Parameter& parameter, bool sequence_parallel);

}  // namespace mgplan::model
