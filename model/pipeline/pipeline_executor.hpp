#pragma once
// Runs one training step's passes on one pipeline rank, exactly in the order of the schedule.

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "model/layers/deferred_gradients.hpp"
#include "model/layers/model_chunk.hpp"
#include "model/pipeline/send_depth.hpp"
#include "plan/layout/layout_schedule.hpp"

namespace mgplan::model {

/// One microbatch as this rank needs it: ids on the stage with the embedding, targets on the one with the loss.
struct Microbatch {
    MicrobatchContext context;
    Tensor ids;      ///< (rows of the cp rank's slice) int32
    Tensor targets;  ///< the same
};

/// The pp group twice: activations travel forward on one communicator ("pp") and gradients backward on the other
/// ("pp-backward"), so that with two ranks the two kinds of message cannot be taken for one another.
struct PipelineChannels {
    Communicator* forward = nullptr;
    Communicator* backward = nullptr;
};

/// Receives block; sends are started and waited for when more than the depth of their channel are open, the oldest first,
/// and at the end. That keeps what is held bounded and cannot deadlock (send_depth.hpp).
class PipelineExecutor {
public:
    /// `chunks`: this rank's, by virtual stage; `schedule` says between which ranks they lie. All but it outlive the executor.
    PipelineExecutor(const ModelSpec& model, const RankContext& context, std::vector<ModelChunk*> chunks, const PipelineChannels& channels,
                     const LayoutSchedule& schedule);

    /// Runs the rank's list. `source(m)` makes microbatch m, called once per chunk and pass. Every row's loss has the
    /// gradient `d_loss`; the context's losses take up the sum of all rows' on the last stage.
    void run(const RankSchedule& schedule, const std::function<Microbatch(std::int64_t)>& source, double d_loss);

private:
    struct InFlight {
        Microbatch microbatch;
        ChunkSaved saved;
    };
    /// Pipeline ranks before a chunk and after it; -1 at the model's ends, this rank's own at the turn of a V.
    struct Neighbours {
        int before = -1, behind = -1;
    };
    /// A message on its way, and the tensor it is read from.
    struct Sent {
        std::unique_ptr<Pending> pending;
        Tensor tensor;
    };

    void forward(int chunk, std::int64_t index, std::int64_t slot, const std::function<Microbatch(std::int64_t)>& source);
    /// `divided`: the products that make weight gradients wait for weight_gradient().
    void backward(int chunk, std::int64_t index, double d_loss, bool divided);
    void weight_gradient(int chunk, std::int64_t index);
    /// Open sends of one channel; in a V each chunk has a channel of its own.
    [[nodiscard]] std::deque<Sent>& open(bool forward, int chunk) {
        return sent_[forward ? 0 : 1][static_cast<std::size_t>(v_shaped_ ? chunk : 0)];
    }
    /// Receives a chunk's input from `peer`, or takes it over from this rank itself.
    [[nodiscard]] Tensor take(bool forward, int peer, const Microbatch& microbatch, std::int64_t index);
    void pass_on(bool forward, int chunk, int peer, const Tensor& tensor, std::int64_t index);
    /// With CUDA graphs, the slot of each entry of the order.
    [[nodiscard]] std::vector<std::int32_t> slots(const RankSchedule& schedule) const;
    [[nodiscard]] Tensor stream(const MicrobatchContext& microbatch, std::string_view name) const;
    static void send(Communicator& channel, const Tensor& tensor, int peer, std::deque<Sent>& open, std::int64_t depth);

    const ModelSpec& model_;
    RankContext context_;
    std::vector<ModelChunk*> chunks_;
    PipelineChannels channels_;
    std::map<std::pair<int, std::int64_t>, InFlight> in_flight_;          ///< by (chunk, microbatch)
    std::map<std::pair<int, std::int64_t>, DeferredGradients> deferred_;  ///< the same, of divided backwards
    std::array<std::map<std::int64_t, Tensor>, 2> handed_over_;           ///< forward and backward at the turn of a V
    std::vector<Neighbours> neighbours_;                                  ///< by chunk
    bool v_shaped_ = false;
    SendDepth depth_;
    std::array<std::array<std::deque<Sent>, 2>, 2> sent_;  ///< oldest first; forward and backward, and in a V by chunk
};

}  // namespace mgplan::model
