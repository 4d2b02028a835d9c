#include "model/graphs/captured_pass.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// While it lives, allocated memory keeps its contents, if captured work runs only after all takes and returns of its tensors.
class KeptContents {
public:
    explicit KeptContents(Device& device) : device_(device) {
        if (!device.work_capture()->runs_at_once()) device_.allocator().keep_contents(true);
    }
    ~KeptContents() { device_.allocator().keep_contents(false); }
    KeptContents(const KeptContents&) = delete;
    KeptContents& operator=(const KeptContents&) = delete;

private:
    Device& device_;
};

}  // namespace

/// While it lives, the device's work and memory go into a pass.
class CapturedPass::Recorder final : public GraphRecorder {
public:
    Recorder(Device& device, CapturedPass& pass, KnownStorages& known)
        : device_(device), work_(*device.work_capture()), pass_(pass), known_(known) {
        resume();
    }
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;
    ~Recorder() override {
        *self_ = nullptr;
        if (active_) {
            device_.set_recorder(nullptr);
            work_.abandon();
        }
    }

    void finish() { pause(); }

    void on_take(const Storage& storage, std::string_view name) override {
        if (work_.runs_at_once()) cut();
        known_.numbers[storage.number()] = known_.count;
        add(Kind::take, pass_.takes_, Take{known_.count++, storage.bytes(), storage.category(), name, storage.data()});
    }
    void on_give_back(const Storage& storage) noexcept override {
        const auto found = known_.numbers.find(storage.number());
        if (found == known_.numbers.end()) return;
        if (work_.runs_at_once()) cut();
        add(Kind::release, pass_.released_, found->second);
        known_.numbers.erase(found);
    }
    void on_op(std::string_view name) override { op_ = name; }
    void on_host_access() override {
        throw RunError(
            fmt::format("{} cannot be captured: {} passes values between host and device, which a graph cannot repeat; choose other scopes "
                        "with --cuda-graphs, or none",
                        pass_.name_, op_));
    }
    std::unique_ptr<Pending> on_exchange(std::span<const Tensor> tensors, Start start) override {
        Exchange exchange;
        for (const Tensor& tensor : tensors) exchange.tensors.push_back(sketch(tensor));
        exchange.start = std::move(start);
        pause();
        add(Kind::start, pass_.exchanges_, std::move(exchange));
        auto pending = std::make_unique<Watched>(self_, pass_.exchanges_.size() - 1, pass_.exchanges_.back().start(tensors));
        resume();
        return pending;
    }
    void on_recorded(Communicator& communicator, const CollectiveRecord& record) override {
        launches_ = communicator.graph_launches();
        collectives_.push_back({&communicator, record});
    }

    [[nodiscard]] Sketch sketch(const Tensor& tensor) const {
        Sketch result{-1, tensor.shape(), tensor.dtype(), tensor.first_element(), tensor.data(), {}};
        if (!tensor.defined()) return result;
        const auto found = known_.numbers.find(tensor.storage()->number());
        if (found != known_.numbers.end()) {
            result.number = found->second;
        } else {
            const MemoryCategory category = tensor.storage()->category();
            MGPLAN_ASSERT(category == MemoryCategory::parameters || category == MemoryCategory::gradients,
                          "a captured pass knows its tensors, or they last");
            result.lasting = tensor;
        }
        return result;
    }

private:
    /// Records when a collective is waited for. It outlives the recorder if an exception ends the capture while others hold it.
    class Watched final : public Pending {
    public:
        Watched(std::shared_ptr<Recorder*> recorder, std::size_t which, std::unique_ptr<Pending> pending)
            : recorder_(std::move(recorder)), which_(which), pending_(std::move(pending)) {}
        // It may hold the last share of a tensor.
        ~Watched() override {
            pending_.reset();
            if (Recorder* const recorder = *recorder_) recorder->pass_.events_.push_back({Kind::drop, which_});
        }
        void wait() override {
            Recorder* const recorder = *recorder_;
            if (recorder == nullptr) return pending_->wait();
            recorder->pause();
            recorder->pass_.events_.push_back({Kind::wait, which_});
            pending_->wait();
            recorder->resume();
        }

    private:
        std::shared_ptr<Recorder*> recorder_;
        std::size_t which_;
        std::unique_ptr<Pending> pending_;
    };

    template <class Item>
    void add(Kind kind, std::vector<Item>& items, Item item) {
        items.push_back(std::move(item));
        pass_.events_.push_back({kind, items.size() - 1});
    }
    void take_work() {
        auto work = work_.end();
        if (work == nullptr) return;
        Work piece{std::move(work), std::exchange(collectives_, {}), launches_};
        if (!piece.collectives.empty()) {
            piece.text = fmt::format("{} with {}", pass_.name_, launches_->take_recorded());
            launches_->launched(piece.text);
        }
        add(Kind::work, pass_.works_, std::move(piece));
    }
    void cut() {
        take_work();
        work_.begin();
    }
    void pause() {
        device_.set_recorder(nullptr);
        active_ = false;
        take_work();
    }
    void resume() {
        work_.begin();
        active_ = true;
        device_.set_recorder(this);
    }

    Device& device_;
    WorkCapture& work_;
    CapturedPass& pass_;
    KnownStorages& known_;
    std::shared_ptr<Recorder*> self_ = std::make_shared<Recorder*>(this);  // null when it is gone
    std::vector<Recorded> collectives_;                                    // of the open stretch
    GraphLaunches* launches_ = nullptr;
    std::string_view op_ = "an op";
    bool active_ = false;
};

std::vector<Tensor> CapturedPass::capture(Device& device, std::string name, std::vector<Tensor> inputs, const PassBody& body,
                                          KnownStorages& known) {
    MGPLAN_ASSERT(!captured_, "a pass is captured once");
    if (device.work_capture() == nullptr) throw RunError(fmt::format("{} cannot be captured: the device records no work", name));
    name_ = std::move(name);
    for (const Tensor& input : inputs) {
        const auto [entry, fresh] = known.numbers.try_emplace(input.storage()->number(), known.count);
        if (fresh) ++known.count;
        inputs_.push_back({entry->second, input.shape(), input.dtype(), input.first_element(), input.data(), {}});
    }
    std::vector<Tensor> outputs;
    {
        const KeptContents kept(device);
        Recorder recorder(device, *this, known);
        outputs = body(std::move(inputs));
        recorder.finish();
        for (const Tensor& output : outputs) outputs_.push_back(recorder.sketch(output));
    }
    captured_ = true;
    return outputs;
}

Tensor CapturedPass::again(const Sketch& sketch, const PassMemory& memory) {
    if (sketch.number < 0) return sketch.lasting;
    return {sketch.shape, sketch.dtype, memory.held[static_cast<std::size_t>(sketch.number)], sketch.first_element};
}

void CapturedPass::launch(const Work& work) {
    if (!work.collectives.empty()) {
        work.launches->before_launch(work.text);
        for (const Recorded& each : work.collectives) each.communicator->repeated(each.record);
    }
    work.work->launch();
    if (!work.collectives.empty()) work.launches->launched(work.text);
}

void CapturedPass::put_inputs(std::vector<Tensor> inputs, PassMemory& memory) const {
    MGPLAN_ASSERT(inputs.size() == inputs_.size(), "a replay has the inputs of the capture");
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        const Sketch& expected = inputs_[i];
        const Tensor& input = inputs[i];
        if (input.shape() != expected.shape || input.dtype() != expected.dtype) {
            throw RunError(
                fmt::format("{} was captured with an input {} {} and now gets {} {}: a graph repeats one shape; use "
                            "--cuda-graphs none",
                            name_, to_string(expected.dtype), expected.shape.text(), to_string(input.dtype()), input.shape().text()));
        }
        if (input.data() != expected.address)
            throw RunError(
                fmt::format("{} was captured with its input at another address: a graph repeats its addresses; use "
                            "--memory arena, or --cuda-graphs none",
                            name_));
        memory.held[static_cast<std::size_t>(expected.number)] = input.storage();
    }
}

std::vector<Tensor> CapturedPass::replay(Device& device, std::vector<Tensor> inputs, PassMemory& memory) const {
    const auto make_room = [&](int number) { memory.held.resize(std::max(memory.held.size(), static_cast<std::size_t>(number) + 1)); };
    for (const Sketch& input : inputs_) make_room(input.number);
    if (!takes_.empty()) make_room(takes_.back().number);
    put_inputs(std::move(inputs), memory);
    const KeptContents kept(device);
    device.report({"graph replay"});
    std::vector<std::unique_ptr<Pending>> pending(exchanges_.size());
    for (const Event& event : events_) {
        switch (event.kind) {
            case Kind::take: {
                const Take& take = takes_[event.which];
                auto& storage = memory.held[static_cast<std::size_t>(take.number)];
                storage = std::make_shared<Storage>(device, take.bytes, take.category, take.name);
                if (storage->data() != take.address)
                    throw RunError(
                        fmt::format("{} was captured with \"{}\" at another address: a graph repeats its addresses; use --memory arena, "
                                    "or --cuda-graphs none",
                                    name_, take.name));
                break;
            }
            case Kind::release:
                memory.held[static_cast<std::size_t>(released_[event.which])].reset();
                break;
            case Kind::work:
                launch(works_[event.which]);
                break;
            case Kind::start: {
                const Exchange& exchange = exchanges_[event.which];
                std::vector<Tensor> tensors;
                for (const Sketch& sketch : exchange.tensors) tensors.push_back(again(sketch, memory));
                pending[event.which] = exchange.start(tensors);
                break;
            }
            case Kind::wait:
                pending[event.which]->wait();
                break;
            case Kind::drop:
                pending[event.which].reset();
                break;
        }
    }
    std::vector<Tensor> outputs;
    for (const Sketch& output : outputs_) outputs.push_back(again(output, memory));
    return outputs;
}

bool CapturedPass::releases(int number) const {
    return std::find(released_.begin(), released_.end(), number) != released_.end();
}

std::vector<int> CapturedPass::ends() const {
    std::vector<int> numbers;
    for (const auto* list : {&inputs_, &outputs_}) {
        for (const Sketch& sketch : *list) {
            if (sketch.number >= 0) numbers.push_back(sketch.number);
        }
    }
    return numbers;
}

std::int64_t CapturedPass::stretches() const {
    std::int64_t stretches = 0;
    bool open = false;
    for (const Event& event : events_) {
        if (event.kind == Kind::start || event.kind == Kind::wait) open = false;
        if (event.kind != Kind::work || open) continue;
        open = true;
        ++stretches;
    }
    return stretches;
}

std::int64_t CapturedPass::nodes() const {
    std::int64_t nodes = 0;
    for (const Work& work : works_) nodes += work.work->nodes();
    return nodes;
}

}  // namespace mgplan::model
