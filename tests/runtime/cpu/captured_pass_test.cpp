// A pass that was captured on the CPU, as a GPU would repeat it: the work, not the code.

#include "model/graphs/captured_pass.hpp"

#include <array>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/ops/dropout.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"
#include "runtime/cpu/cpu_device.hpp"

namespace mgplan::runtime::captured_pass_test {
namespace {

using model::CapturedPass;
using model::KnownStorages;
using model::MemoryCategory;
using model::PassMemory;
using model::Tensor;
using testing::AllOf;
using testing::HasSubstr;

class CapturedPasses : public testing::Test {
protected:
    Tensor tensor(std::int64_t rows, double first) {
        Tensor made = device_.empty({rows, 8}, Dtype::fp64, MemoryCategory::activations, "x");
        std::vector<double> values(static_cast<std::size_t>(rows * 8));
        std::iota(values.begin(), values.end(), first);
        device_.write(made, values.data());
        return made;
    }
    std::vector<double> values(const Tensor& tensor) {
        std::vector<double> found(static_cast<std::size_t>(tensor.elements()));
        device_.read(tensor, found.data());
        return found;
    }
    std::vector<Tensor> capture(CapturedPass& pass, const Tensor& x, const model::PassBody& body) {
        return pass.capture(device_, "the forward graph of layer 3", {x}, body, known_);
    }

    CpuDevice device_;
    KnownStorages known_;
};

TEST_F(CapturedPasses, RepeatTheWorkOnNewValuesWithoutItsCode) {
    CapturedPass pass;
    const Tensor x = tensor(4, 1);
    int calls = 0;
    const auto twice = [&](std::vector<Tensor> inputs) {
        ++calls;
        const Tensor y = device_.zeros(inputs.front().shape(), Dtype::fp64, MemoryCategory::activations, "y");
        add(inputs.front(), y);
        add(inputs.front(), y);
        return std::vector<Tensor>{y};
    };
    std::vector<double> expected = values(x);
    for (double& each : expected) each *= 2;
    EXPECT_EQ(values(capture(pass, x, twice).front()), expected) << "capturing does the work too";
    EXPECT_EQ(pass.nodes(), 3);
    EXPECT_EQ(pass.stretches(), 1);
    std::vector<double> other(32, 5);
    device_.write(x, other.data());
    for (int replay = 0; replay < 3; ++replay) {
        PassMemory memory;
        EXPECT_EQ(values(pass.replay(device_, {x}, memory).front()), std::vector<double>(32, 10));
    }
    EXPECT_EQ(calls, 1);
}

TEST_F(CapturedPasses, RefuseAnotherShapeAndAnotherAddressByTheGraphsName) {
    CapturedPass pass;
    const Tensor x = tensor(4, 1);
    static_cast<void>(capture(pass, x, [](std::vector<Tensor> inputs) {
        scale(inputs.front(), 2);
        return std::vector<Tensor>{};
    }));
    PassMemory memory;
    EXPECT_THAT([&] { static_cast<void>(pass.replay(device_, {tensor(3, 1)}, memory)); },
                testing::ThrowsMessage<RunError>(AllOf(HasSubstr("the forward graph of layer 3"), HasSubstr("repeats one shape"))));
    EXPECT_THAT([&] { static_cast<void>(pass.replay(device_, {tensor(4, 1)}, memory)); },
                testing::ThrowsMessage<RunError>(AllOf(HasSubstr("the forward graph of layer 3"), HasSubstr("repeats its addresses"))));
}

TEST_F(CapturedPasses, RefuseWhatTheHostReadsOrWritesByTheOpsName) {
    const Tensor x = tensor(4, 1);
    const auto refused = [&](const model::PassBody& body, const char* op) {
        CapturedPass pass;
        EXPECT_THAT([&] { static_cast<void>(capture(pass, x, body)); },
                    testing::ThrowsMessage<RunError>(
                        AllOf(HasSubstr("the forward graph of layer 3 cannot be captured"), HasSubstr(op), HasSubstr("--cuda-graphs"))));
        EXPECT_EQ(device_.recorder(), nullptr);
    };
    refused(
        [](const std::vector<Tensor>& inputs) {
            static_cast<void>(model::sum_of_squares(inputs.front()));
            return inputs;
        },
        "sum_of_squares");
    refused(
        [&](const std::vector<Tensor>& inputs) {
            scale(inputs.front(), 1);
            static_cast<void>(values(inputs.front()));
            return inputs;
        },
        "scale");
    EXPECT_GE(values(x).front(), 1) << "and the device works on";
}

/// A group of two whose partner has the same values, so that a sum is a product by 2: a kernel that is recorded like others.
class RecordedCommunicator final : public model::Communicator, public model::GraphLaunches, public model::CollectiveListener {
public:
    /// `recorded`: in graphs; otherwise they are cut there.
    explicit RecordedCommunicator(bool recorded = true) : Communicator("tp", 2, 0), recorded_(recorded) { set_listener(this); }
    model::GraphLaunches* graph_launches() override { return recorded_ ? this : nullptr; }
    void abort(const std::string& /*reason*/) noexcept override {}
    std::string take_recorded() override { return "all_reduce in group tp"; }
    void before_launch(const std::string& graph) override { heard.push_back("before " + graph); }
    void launched(const std::string& graph) override { heard.push_back("behind " + graph); }
    void on_collective(const model::CollectiveRecord& record) override {
        heard.push_back(fmt::format("{} of {} bytes", to_string(record.kind), record.payload_bytes));
    }

    std::vector<std::string> heard;

private:
    class Done final : public model::Pending {
        void wait() override {}
    };
    static std::unique_ptr<model::Pending> none() { return std::make_unique<Done>(); }
    std::unique_ptr<model::Pending> do_all_reduce(const Tensor& tensor, model::Reduction /*reduction*/) override {
        heard.emplace_back("called");
        scale(tensor, 2);
        return none();
    }
    void do_count(model::CollectiveKind /*kind*/, std::int64_t payload_bytes) override {
        heard.push_back(fmt::format("counts {} bytes", payload_bytes));
    }
    std::unique_ptr<model::Pending> do_all_gather(const Tensor&, const Tensor&) override { return none(); }
    std::unique_ptr<model::Pending> do_reduce_scatter(const Tensor&, const Tensor&, model::Reduction) override { return none(); }
    std::unique_ptr<model::Pending> do_all_gather_rows(const Tensor&, const Tensor&, std::span<const std::int64_t>) override {
        return none();
    }
    std::unique_ptr<model::Pending> do_reduce_scatter_rows(const Tensor&, const Tensor&, std::span<const std::int64_t>,
                                                           model::Reduction) override {
        return none();
    }
    std::unique_ptr<model::Pending> do_all_to_all(const Tensor&, const Tensor&, std::span<const std::int64_t>,
                                                  std::span<const std::int64_t>) override {
        return none();
    }
    std::unique_ptr<model::Pending> do_broadcast(const Tensor&, int) override { return none(); }
    std::unique_ptr<model::Pending> do_send(const Tensor&, int) override { return none(); }
    std::unique_ptr<model::Pending> do_receive(const Tensor&, int) override { return none(); }
    void do_barrier() override {}

    bool recorded_;
};

TEST_F(CapturedPasses, LeaveACollectiveToWhoeverHoldsItWhenAnExceptionEndsThem) {
    RecordedCommunicator group(false);
    std::unique_ptr<model::Pending> open;  // as of buckets and messages, which outlive the layers' passes
    const Tensor x = tensor(4, 1);
    std::vector<double> expected = values(x);
    for (double& each : expected) each *= 2;
    {
        CapturedPass pass;
        const auto body = [&](const std::vector<Tensor>& inputs) -> std::vector<Tensor> {
            open = group.start_all_reduce(inputs.front(), model::Reduction::sum);
            throw RunError("a fault");
        };
        EXPECT_THROW(static_cast<void>(capture(pass, x, body)), RunError);
    }
    open->wait();
    open.reset();
    EXPECT_EQ(values(x), expected);
}

TEST_F(CapturedPasses, HoldCollectivesThatCanBeRecordedAndTellOfThemInEachLaunch) {
    RecordedCommunicator group;
    CapturedPass pass;
    const Tensor x = tensor(4, 1);
    const auto body = [&](const std::vector<Tensor>& inputs) {
        scale(inputs.front(), 3);
        group.all_reduce(inputs.front(), model::Reduction::sum);
        scale(inputs.front(), 5);
        return inputs;
    };
    const std::string graph = "the forward graph of layer 3 with all_reduce in group tp", bytes = "all_reduce of 256 bytes";
    static_cast<void>(capture(pass, x, body));
    EXPECT_EQ(values(x).front(), 30);
    EXPECT_EQ(pass.stretches(), 1) << "it is not cut";
    EXPECT_EQ(pass.nodes(), 3);
    EXPECT_THAT(group.heard, testing::ElementsAre(bytes, "called", "behind " + graph));
    for (int replay = 0; replay < 2; ++replay) {
        group.heard.clear();
        PassMemory memory;
        const double before = values(x).front();
        static_cast<void>(pass.replay(device_, {x}, memory));
        EXPECT_EQ(values(x).front(), 30 * before);
        EXPECT_THAT(group.heard, testing::ElementsAre("before " + graph, bytes, "counts 256 bytes", "behind " + graph));
    }
}

TEST_F(CapturedPasses, DropWhatSeedAndOffsetInDeviceMemorySay) {
    model::DropoutPlace place;
    place.probability = 0.5;
    place.positions = model::zigzag_positions(4, 1, 1, 0);
    const Tensor x = tensor(4, 1), zero = device_.zeros({4, 8}, Dtype::fp64, MemoryCategory::activations, "zero");
    const Tensor words = device_.empty({4}, Dtype::int32, MemoryCategory::workspace, "seed and offset");
    const auto write = [&](std::uint64_t seed, std::int64_t first) {
        const auto low = static_cast<std::uint64_t>(first);
        const std::array<std::uint32_t, 4> values{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                                                  static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32)};
        device_.write(words, values.data());
    };
    CapturedPass pass;
    place.changing = words;
    write(1, 0);
    static_cast<void>(capture(
        pass, x, [&](const std::vector<Tensor>& inputs) { return std::vector<Tensor>{model::dropout_add(inputs.front(), zero, place)}; }));
    place.changing = {};
    std::vector<std::vector<double>> seen;
    for (const auto& [seed, first] :
         {std::pair<std::uint64_t, std::int64_t>{1, 0}, {std::uint64_t{7} << 32 | 3, 0}, {1, std::int64_t{5} << 33}}) {
        write(seed, first);
        PassMemory memory;
        place.seed = seed;
        place.first_sequence = first;
        seen.push_back(values(model::dropout_add(x, zero, place)));
        EXPECT_EQ(values(pass.replay(device_, {x}, memory).front()), seen.back());
    }
    EXPECT_NE(seen[0], seen[1]);
    EXPECT_NE(seen[0], seen[2]);
}

}  // namespace
}  // namespace mgplan::runtime::captured_pass_test
