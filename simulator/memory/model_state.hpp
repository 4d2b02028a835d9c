#pragma once
// Bytes of parameters, gradients and optimizer state that one rank holds all the time, including all holes and padding of their buffers.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "model/optimizer/buffer_layout.hpp"
#include "plan/layout/layout.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/workload.hpp"
#include "simulator/memory/buffer_state.hpp"
#include "simulator/memory/fp8_weights.hpp"
#include "simulator/memory/gathered_weights.hpp"

namespace mgplan::simulator {

/// The model state of any rank of any layout of one workload; every sum that layouts share is computed once. Not thread-safe. The workload
/// must outlive it.
class ModelStates {
public:
    explicit ModelStates(const Workload& workload)
        : workload_(workload),
          in_megatron_(as_built_by(Engine::megatron, workload.model)),
          megatron_differs_(!(in_megatron_ == workload.model)),
          kinds_(layer_kinds(workload.model, workload.training.megatron)) {}

    /// State of every rank of pipeline stage `pp_rank`. The reference is valid as long as this object.
    [[nodiscard]] const ModelStateBytes& of(const Layout& layout, int pp_rank) {
        return stages(layout).of[static_cast<std::size_t>(pp_rank)];
    }
    /// States of all stages of a layout.
    struct Stages {
        std::vector<ModelStateBytes> of;  ///< by stage
        int fullest = 0;                  ///< the first stage with the largest sum of parameters, gradients and optimizer state
    };
    /// The reference is valid as long as this object.
    [[nodiscard]] const Stages& stages(const Layout& layout);

    /// Bytes of each buffer of a stage for gathered weights and their gradients (gathered_weights.hpp); empty if weights are not split.
    /// Also included in of().
    [[nodiscard]] std::vector<std::int64_t> gather_buffers(const Layout& layout, int pp_rank) const;

private:
    /// Dense and expert buffers, each in the compute type and in fp8.
    static constexpr std::size_t kBuffers = 4;
    using Sums = std::array<model::ParameterSums, kBuffers>;

    struct Key {
        const StageSplit* split = nullptr;
        std::int64_t stages = 0;  ///< set if `split` is not
        std::int64_t tp = 0, ep = 0, etp = 0, world = 0;
        Engine engine = Engine::mgplan;
        bool gathers_again = false;  ///< split weights whose forward is recomputed
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& key) const;
    };
    /// Elements of Muon's matrices, by [0] dense, [1] expert parameters.
    struct Matrices {
        std::array<std::int64_t, 2> elements{}, largest{};
        Matrices& operator+=(const Matrices& other);
        [[nodiscard]] Matrices times(std::int64_t count) const;
    };
    /// Copies of weights in fp8, as in Transformer Engine and as in mgplan's own engine.
    struct Fp8Copies {
        Fp8WeightBytes megatron, own;
        [[nodiscard]] const Fp8WeightBytes& of(Engine engine) const { return engine == Engine::mgplan ? own : megatron; }
    };
    /// Parts of a chunk other than decoder layers.
    struct Ends {
        StageChunk contents;  ///< without decoders
        bool final_norm = false;
        Sums sums{};
        Fp8Copies fp8;
        Matrices matrices;
        std::int64_t workspace = 0;       ///< in bytes, of Muon for the matrix that needs most
        std::int64_t in_fp32 = 0;         ///< elements that stay in fp32 with engine megatron
        std::int64_t frozen = 0;          ///< elements that are not trained, outside of the buffers; in the model's dtype
        std::vector<std::int64_t> alone;  ///< shared embeddings, which are dense and never fp8
        std::vector<model::BufferParameter> before, behind;  ///< in module order, around the decoder layers
    };
    /// Pieces of the model for one way to divide it.
    struct Pieces {
        /// A decoder layer of one kind.
        struct Layer {
            Sums sums{};
            Fp8Copies fp8;
            Matrices matrices;
            std::vector<model::BufferParameter> list;
            /// `packed`: bytes of frozen weights in 4 bits, which are not among the elements `frozen`.
            std::int64_t workspace = 0, in_fp32 = 0, frozen = 0, packed = 0;
        };
        std::vector<Layer> layers;  ///< by index of their kind
        std::vector<Ends> ends;
    };
    struct Entry {
        std::shared_ptr<const StageSplit> split;  ///< keeps the key's address valid
        Stages stages;
    };
    /// A chunk that occurred in some split of a pipeline.
    struct KnownChunk {
        StageChunk contents;
        bool cut = false;  ///< the first chunk of the first stage, the only one with its buffers cut into buckets
        ModelStateBytes bytes;
    };

    /// The model as the layout's engine builds it.
    [[nodiscard]] const ModelSpec& built_for(const Layout& layout) const {
        return layout.engine == Engine::megatron ? in_megatron_ : workload_.model;
    }
    [[nodiscard]] Pieces& pieces_of(const Layout& layout);
    [[nodiscard]] const Ends& ends_of(Pieces& pieces, const Layout& layout, const StageChunk& chunk) const;
    [[nodiscard]] ModelStateBytes chunk_bytes(Pieces& pieces, const Layout& layout, int pp_rank, int chunk) const;
    /// Elements of the largest parameter of each buffer of a chunk with `layers` layers of each kind.
    [[nodiscard]] static std::array<std::int64_t, kBuffers> largest_in_buffers(const Pieces& pieces, const Ends& ends,
                                                                               const std::vector<std::int64_t>& layers);
    /// State of a chunk if more than the optimizer's state is sharded.
    [[nodiscard]] ModelStateBytes sharded_chunk_bytes(const Pieces& pieces, const Ends& ends, const Layout& layout,
                                                      const std::vector<std::int64_t>& layers) const;
    /// True if the layout's weights are split over neighbours (plan/training/weight_shards.hpp).
    [[nodiscard]] bool in_parts(const Layout& layout) const;
    /// Replaces split parameters by the parts that a rank holds.
    void take_parts(std::vector<Parameter>& parameters, const Layout& layout) const;
    [[nodiscard]] GatherBufferList gather_list(const Layout& layout, int pp_rank) const;
    /// State of a stage of engine mgplan with sharded parameters or gradients, unit by unit, with the peak of what its passes gather and
    /// reduce.
    [[nodiscard]] ModelStateBytes stage_by_units(Pieces& pieces, const Layout& layout, int pp_rank) const;
    /// Biases of the experts' scores, which no optimizer updates: one for each expert of each MoE layer of the stage, fp32 (fp64 with
    /// fp64), and the number of tokens that chose it, int32 (model/layers/expert_bias.hpp). Megatron-core counts the tokens of each expert
    /// in fp32 (transformer/moe/router.py, TopKRouter). MoE layers that route by a table of token ids have the table instead of biases:
    /// top_k experts of each id, int32 (its branch dev at d48bd6be, moe/router.py, tid2eid).
    [[nodiscard]] std::int64_t expert_bias_bytes(const Layout& layout, int pp_rank) const;
    /// Takes the frozen parameters out of a list and returns their number of elements in the model's dtype. `stored_quantised`: weights of
    /// linear layers are not among these, but their copies in fp8, or in 4 bits, alone.
    [[nodiscard]] static std::int64_t take_frozen(std::vector<Parameter>& parameters, bool stored_quantised);
    /// Number of elements that stay in fp32 with engine megatron, whatever the model's dtype.
    [[nodiscard]] std::int64_t in_fp32_of(const std::vector<Parameter>& parameters) const;
    /// Scratch bytes with which engine mgplan's Muon orthogonalises one matrix: the maximum over some parameters, and on a stage. 0 with
    /// other optimizers.
    [[nodiscard]] std::int64_t workspace_of(const std::vector<Parameter>& parameters, const ParallelSizes& sizes) const;
    [[nodiscard]] std::int64_t stage_workspace(Pieces& pieces, const Layout& layout, int pp_rank) const;
    /// All parameters of a chunk.
    [[nodiscard]] std::vector<model::BufferParameter> in_module_order(const Pieces& pieces, const Ends& ends,
                                                                      const StageChunk& chunk) const;
    /// `key`: of the layout.
    [[nodiscard]] std::vector<ModelStateBytes> all_stages(const Layout& layout, const Key& key);
    /// True if two chunks hold equal layers and ends.
    [[nodiscard]] bool holds_alike(const StageChunk& a, const StageChunk& b) const;
    /// True if the chunks of two stages hold equal layers and ends, pairwise.
    [[nodiscard]] bool holds_alike(const StageSplit& split, int stage, int other) const;
    /// fp8 copies of the linear layers' weights among these; zero if GEMMs are not in fp8.
    [[nodiscard]] Fp8Copies fp8_of(const std::vector<Parameter>& parameters) const;
    /// `in_bf16`: of a layer whose GEMMs stay in 16 bits.
    [[nodiscard]] model::BufferParameter in_buffer(const Parameter& parameter, bool in_bf16) const;
    [[nodiscard]] Sums sums_of(const std::vector<Parameter>& parameters, std::vector<std::int64_t>* alone, bool in_bf16) const;
    [[nodiscard]] Matrices matrices_of(const std::vector<Parameter>& parameters) const;

    const Workload& workload_;
    ModelSpec in_megatron_;  ///< the model with Megatron-LM's layers
    bool megatron_differs_;  ///< they are not those of the model
    LayerKinds kinds_;
    std::unordered_map<Key, Pieces, KeyHash> pieces_;
    std::unordered_map<Key, Entry, KeyHash> entries_;
    std::unordered_map<Key, std::vector<KnownChunk>, KeyHash> chunks_;  ///< keys without split, but with the number of stages
    Key last_key_;
    const Entry* last_ = nullptr;
};

}  // namespace mgplan::simulator
