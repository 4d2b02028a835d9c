#pragma once
// Captures one pass of a part of a layer, and replays it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/device/device.hpp"
#include "model/device/graph_capture.hpp"

namespace mgplan::model {

/// A pass as eager code: it owns its inputs, so that it can free them after it has read them for the last time.
using PassBody = std::function<std::vector<Tensor>(std::vector<Tensor> inputs)>;

/// The storages of a forward and its backward, numbered in the order of their first use. While passes are replayed the
/// layer saves nothing; these storages live on from the forward to the backward.
struct PassMemory {
    std::vector<std::shared_ptr<Storage>> held;
};

/// The storages of a forward and its backward while these are captured: device's number -> number in PassMemory.
struct KnownStorages {
    std::map<std::uint64_t, int> numbers;
    int count = 0;
};

/// Work, allocations and collectives of one pass, in their order. The tensors of a replay are new ones at the old addresses.
class CapturedPass {
public:
    /// Runs `body` and records it. Throws RunError, naming `name` and the op, for work that no graph can hold. `known` goes
    /// from the forward's capture to the backward's.
    [[nodiscard]] std::vector<Tensor> capture(Device& device, std::string name, std::vector<Tensor> inputs, const PassBody& body,
                                              KnownStorages& known);
    /// Replays the pass. Throws RunError if inputs have another shape, or memory another address, than at the capture.
    [[nodiscard]] std::vector<Tensor> replay(Device& device, std::vector<Tensor> inputs, PassMemory& memory) const;

    [[nodiscard]] bool captured() const { return captured_; }
    /// Returns true if the pass frees the storage of this number.
    [[nodiscard]] bool releases(int number) const;
    /// Numbers of the storages of inputs and outputs.
    [[nodiscard]] std::vector<int> ends() const;
    /// Stretches of work: CUDA graphs, one more than collectives cut it into; one where they are recorded with it.
    [[nodiscard]] std::int64_t stretches() const;
    /// Kernels, copies and fills.
    [[nodiscard]] std::int64_t nodes() const;

private:
    class Recorder;

    enum class Kind : std::uint8_t { take, release, work, start, wait, drop };
    struct Event {
        Kind kind;
        std::size_t which;
    };
    struct Take {
        int number;
        std::int64_t bytes;
        MemoryCategory category;
        std::string_view name;
        const std::byte* address;
    };
    /// A tensor by its storage's number, or, of parameters and their gradients, itself.
    struct Sketch {
        int number = -1;
        Shape shape;
        Dtype dtype = Dtype::fp32;
        std::int64_t first_element = 0;
        const void* address = nullptr;
        Tensor lasting{};
    };
    /// A collective inside a graph.
    struct Recorded {
        Communicator* communicator;
        CollectiveRecord record;
    };
    struct Work {
        std::unique_ptr<CapturedWork> work;
        std::vector<Recorded> collectives;  ///< in their order
        GraphLaunches* launches = nullptr;  ///< of their transport; nullptr without collectives
        std::string text{};                 ///< the pass's name and its collectives
    };
    struct Exchange {
        std::vector<Sketch> tensors;
        GraphRecorder::Start start;
    };

    [[nodiscard]] static Tensor again(const Sketch& sketch, const PassMemory& memory);
    void put_inputs(std::vector<Tensor> inputs, PassMemory& memory) const;
    static void launch(const Work& work);

    bool captured_ = false;
    std::string name_;
    std::vector<Event> events_;
    std::vector<Take> takes_;
    std::vector<int> released_;
    std::vector<Work> works_;
    std::vector<Exchange> exchanges_;
    std::vector<Sketch> inputs_, outputs_;
};

}  // namespace mgplan::model
