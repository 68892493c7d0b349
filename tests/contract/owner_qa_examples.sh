# Test 1: Basic RAG Query
curl -X POST http://localhost:8000/owner/ask \
  -H "Content-Type: application/json" \
  -d '{
    "question": "What services did customers book this week?",
    "limit": 5
  }'

# Test 2: Filtered Search
curl -X POST http://localhost:8000/owner/search \
  -H "Content-Type: application/json" \
  -d '{
    "query": "haircut booking",
    "date_from": "2026-01-10",
    "date_to": "2026-01-15",
    "source_types": ["call_transcript"],
    "min_similarity": 0.4
  }'

# Test 3: Customer-Specific Query
curl -X POST http://localhost:8000/owner/ask \
  -H "Content-Type: application/json" \
  -d '{
    "question": "What did this customer request in their calls?",
    "customer_id": 42,
    "limit": 10
  }'

# Test 4: No Results (Guardrail Test)
curl -X POST http://localhost:8000/owner/ask \
  -H "Content-Type: application/json" \
  -d '{
    "question": "What is the weather like?",
    "min_similarity": 0.9
  }'
# Should return: "No relevant data found..."
