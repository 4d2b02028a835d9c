#pragma once
// The layers of each pipeline stage and model chunk. Computed here and nowhere else.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan {

/// Contents of one model chunk of one pipeline rank, in order: embedding, decoders, MTP layers, loss.
struct StageChunk {
    bool embedding = false;
    std::int64_t decoders = 0;
    std::int64_t first_decoder = 0;  ///< global index of its first decoder layer, from 0 (Megatron's layer offset)
    std::int64_t mtp = 0;
    bool loss = false;
    bool operator==(const StageChunk&) const = default;
};

/// Form of the request for the split; Megatron-LM needs it to reproduce the split.
enum class SplitKind : std::uint8_t { even, account_embedding_loss, first_last, layout_string };

/// A request; stage sizes, accounting and layout string exclude each other.
struct StageSplitRequest {
    std::int64_t layers = 0;
    int pp = 1;
    int vpp = 1;  ///< 0 with a layout string: its number of stages gives the chunks
    std::int64_t mtp_layers = 0;
    std::optional<std::int64_t> first_stage_layers;  ///< --decoder-first-pipeline-num-layers: of the rank, all chunks
    std::optional<std::int64_t> last_stage_layers;
    bool account_for_embedding = false;
    bool account_for_loss = false;
    bool v_shaped = false;  ///< two chunks in a V: chunk 1 of rank r is stage 2·pp - 1 - r (plan/schedule/pipeline_order.hpp)
    std::optional<std::string> pipeline_layout;  ///< Megatron-LM's --pipeline-model-parallel-layout
    bool operator==(const StageSplitRequest&) const = default;
};

/// The result: chunk (pp rank, vpp rank) -> contents. Immutable.
class StageSplit {
public:
    StageSplit(StageSplitRequest request, SplitKind kind, std::vector<StageChunk> chunks);

    [[nodiscard]] int pp() const { return request_.pp; }
    [[nodiscard]] int vpp() const { return request_.vpp; }
    [[nodiscard]] SplitKind kind() const { return kind_; }
    [[nodiscard]] const StageSplitRequest& request() const { return request_; }
    [[nodiscard]] bool v_shaped() const { return request_.v_shaped; }
    /// Contents of chunk `vpp_rank` of pipeline rank `pp_rank`.
    [[nodiscard]] const StageChunk& chunk(int pp_rank, int vpp_rank) const {
        const int place = request_.v_shaped && vpp_rank == 1 ? request_.pp - 1 - pp_rank : pp_rank;
        return chunks_[static_cast<std::size_t>(vpp_rank) * static_cast<std::size_t>(request_.pp) + static_cast<std::size_t>(place)];
    }
    /// Decoder layers of pipeline rank `pp_rank` over its chunks.
    [[nodiscard]] std::int64_t decoders(int pp_rank) const;
    bool operator==(const StageSplit&) const = default;

private:
    StageSplitRequest request_;
    SplitKind kind_;
    std::vector<StageChunk> chunks_;  ///< by stage: where they do not lie in a V, index = vpp_rank * pp + pp_rank
};

/// Computes the split as Megatron-LM does (transformer_block.py get_num_layers_to_build, transformer_layer.py
/// get_transformer_layer_offset, pipeline_parallel_layer_layout.py). Throws ConfigError with every rule that is broken.
/// Chunks without a decoder are legal where embedding or loss counts as a layer, and in layout strings. Bounds: layers
/// and pp·vpp up to 65,536. The result's request has vpp filled in.
[[nodiscard]] StageSplit make_stage_split(const StageSplitRequest& request);

/// The planner's split for (layers, pp, vpp) when the user requests none: even where it divides; else embedding and loss counted as layers;
/// else first and last rank smaller than the middle ones; else a balanced layout string. Nothing where there are fewer layers than chunks
/// would need (a chunk of embedding or loss alone is possible only where it counts as a layer). The MTP layers sit on the last stage,
/// before the loss. In a V (vpp = 2) sizes of first and last ranks are left out: a rank has both an early and a late stage.
[[nodiscard]] std::optional<StageSplit> automatic_stage_split(std::int64_t layers, std::int64_t mtp_layers, int pp, int vpp,
                                                              bool v_shaped = false);

}  // namespace mgplan
