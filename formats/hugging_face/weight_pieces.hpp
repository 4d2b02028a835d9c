#pragma once
// Builds parameters from the tensors of a checkpoint.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/hugging_face/weight_name_table.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/parameters/published_weights.hpp"

namespace mgplan::formats {

/// The tensors of a checkpoint, each once, and the rows of them that parameters are. Model and names outlive it.
class WeightPieces {
public:
    WeightPieces(const ModelSpec& model, const WeightNames& names) : model_(model), names_(names) {}

    /// The number of a tensor, which is added where it is new.
    std::size_t tensor(std::string name, std::vector<std::int64_t> shape);

    /// The next `rows` rows of the parameter.
    static void append(PublishedParameter& to, PublishedRows rows);

    /// The parameter is one tensor, element by element.
    void is(PublishedParameter& entry, std::string name, std::vector<std::int64_t> shape = {});

    /// A linear layer's matrix or bias, of which rows are taken; `all_rows` there are.
    struct Linear {
        std::size_t tensor;
        std::int64_t row_step, column_step;
    };
    [[nodiscard]] Linear linear(const std::string& module, std::int64_t all_rows, std::int64_t columns, bool is_bias);
    static void append_rows(PublishedParameter& to, const Linear& from, std::int64_t first, std::int64_t rows, std::int64_t every = 1);
    void is_linear(PublishedParameter& entry, const std::string& module, bool is_bias);

    /// Rows of one head: where positions turn neighbours, the first of each pair come first here.
    void append_head(PublishedParameter& to, const Linear& from, std::int64_t first, std::int64_t width, std::int64_t rotated) const;

    [[nodiscard]] std::vector<PublishedTensor> take() { return std::move(tensors_); }

private:
    const ModelSpec& model_;
    const WeightNames& names_;
    std::vector<PublishedTensor> tensors_;
    std::map<std::string, std::size_t, std::less<>> numbers_;
};

}  // namespace mgplan::formats
